#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <vector>

#include "base/own_pages.h"
#include "graph/constants.h"
#include "graph/known_type.h"
#include "graph/operator_traits.h"
#include "graph/symbols.h"
#include "graph/writes.h"
#include "passes/cpu/passes.h"
#include "passes/general/precision.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// The kinds of nodes that give the same in float32, but for the rounding of their results. A node that computes takes
// float32 always; one that moves elements, or compares them, does where one of its operands is at hand in float32.
enum class Kind : uint8_t { Other, Product, Computing, Moving, Comparing };

Kind kind_of(const jit::Node* node) {
  if (!node->kind().is_aten() || !node->maybeOperator()) return Kind::Other;
  if (has(node, Trait::Product)) return Kind::Product;
  if (has(node, Trait::Computes)) return Kind::Computing;
  if (has(node, Trait::Moves)) return Kind::Moving;
  return has(node, Trait::Compares) ? Kind::Comparing : Kind::Other;
}

bool is_list(const jit::Value* value) {
  return value->node()->kind() == c10::prim::ListConstruct && value->type()->isSubtypeOf(*c10::ListType::ofTensors());
}

class Widening {
 public:
  Widening(Program& program, c10::ScalarType type)
      : program_(program),
        graph_(*program.graph),
        constants_(program),
        writers_(program.graph),
        type_(type),
        has_weights_(std::ranges::any_of(
            graph_.inputs(), [&](const jit::Value* input) { return is_weight(input) || is_packed_weight(input); })) {}

  void run() {
    run(graph_.block());
    eliminate_dead_code(program_.graph);
  }

 private:
  void run(jit::Block* block) {
    std::vector<jit::Value*> around;  // values known here are good for this block, and those inside of it
    around.swap(known_here_);
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      jit::Node* const node = *it++;
      for (jit::Block* inner : node->blocks()) run(inner);
      if (node->kind() == c10::aten::to && node->matches(kTo)) {
        if (!writers_.has_writers(node)) widen_cast(node);
      } else if (fits(node) && !writers_.has_writers(node)) {
        widen(node);
      }
    }
    for (jit::Value* value : known_here_) wide_.erase(value);
    around.swap(known_here_);
  }

  // Gives the tensors that a node takes, one by one or in lists.
  static std::vector<const jit::Value*> operands(const jit::Node* node) {
    std::vector<const jit::Value*> all;
    for (const jit::Value* input : node->inputs()) {
      if (is_list(input)) {
        all.insert(all.end(), input->node()->inputs().begin(), input->node()->inputs().end());
      } else if (is_tensor(input)) {
        all.push_back(input);
      }
    }
    return all;
  }

  bool is_half(const jit::Value* value) const { return type_of(value) == type_; }

  // Tells whether a constant is the weight of a product or of a recurrent layer, or a table whose rows are picked. Keys
  // and values of attention are no weights.
  bool is_weight(const jit::Value* input) const {
    const auto tensor = constants_.tensor(input);
    if (!tensor || !tensor->defined() || tensor->scalar_type() != type_ || tensor->dim() < 2) return false;
    return std::ranges::any_of(input->uses(), [&](const jit::Use& use) {
      const auto kind = use.user->kind();
      if (use.offset == 0)
        return kind == kGather || kind == c10::aten::index_select || kind == c10::prim::ListConstruct;
      return kind == c10::aten::convolution || kind == c10::prim::ListConstruct ||
             (has(use.user, Trait::Product) && tensor->dim() == 2);
    });
  }

  // Tells whether an input is a packed weight, which a product of the type takes in place of a matrix.
  bool is_packed_weight(const jit::Value* input) const {
    return input->type()->kind() == c10::TypeKind::ClassType &&
           std::ranges::any_of(input->uses(), [&](const jit::Use& use) {
             return has(use.user, Trait::Product) && is_half(use.user->input(0));
           });
  }

  bool fits(const jit::Node* node) const {
    const Kind kind = kind_of(node);
    if (kind == Kind::Other || dtype_argument(node) || (!has_weights_ && kind != Kind::Product)) return false;
    bool has_half = false, has_wide = false;
    for (const jit::Value* operand : operands(node)) {
      if (!type_of(operand) && kind != Kind::Product) return false;
      has_half = has_half || is_half(operand);
      has_wide = has_wide || (wide_.contains(operand) && !constants_.tensor(operand));
    }
    return has_half && (has_wide || kind == Kind::Product || kind == Kind::Computing) &&
           std::ranges::all_of(node->outputs(), is_tensor);
  }

  // Tells whether a result is of the type. If the result's type is not known, as its sizes are not, it is that of the
  // operands, none of which is of another floating type.
  bool gives_half(const jit::Node* node, const jit::Value* result) const {
    if (const auto known = type_of(result)) return known == type_;
    return kind_of(node) != Kind::Comparing && std::ranges::all_of(operands(node), [&](const jit::Value* operand) {
             const auto type = type_of(operand).value_or(type_);
             return type == type_ || !c10::isFloatingType(type);
           });
  }

  void widen(jit::Node* node) {
    std::vector<jit::Value*> results;
    std::ranges::copy_if(node->outputs(), std::back_inserter(results),
                         [&](const jit::Value* result) { return gives_half(node, result); });
    {
      const jit::WithInsertPoint before(node);
      for (size_t i = 0; i < node->inputs().size(); ++i) {
        jit::Value* const input = node->input(i);
        if (is_list(input)) {
          node->replaceInput(i, wide_list(input, *node));
        } else if (is_tensor(input) && type_of(input).value_or(type_) == type_) {
          node->replaceInput(i, wide(input, *node));
        }
      }
    }
    const jit::WithInsertPoint after(node->next());
    for (jit::Value* const result : results) {
      jit::Value* const rounded = insert_cast(graph_, result, type_, *node);
      result->setType(type_like(result, c10::kFloat));
      result->replaceAllUsesAfterNodeWith(rounded->node(), rounded);
      if (has_weights_) remember(rounded, result);
    }
  }

  // Has a cast of the model's take the value that has not been rounded.
  void widen_cast(jit::Node* node) {
    const auto to = constants_.get<c10::ScalarType>(node->input(1));
    const auto found = wide_.find(node->input(0));
    if (found == wide_.end() || (to != c10::kFloat && to != c10::kDouble)) return;
    if (to == c10::kDouble) {
      node->replaceInput(0, found->second);
    } else {
      node->output()->replaceAllUsesWith(found->second);
    }
  }

  jit::Value* wide_list(jit::Value* list, const jit::Node& user) {
    std::vector<jit::Value*> items(list->node()->inputs().begin(), list->node()->inputs().end());
    for (jit::Value*& item : items) {
      if (is_half(item)) item = wide(item, user);
    }
    return graph_.insertNode(graph_.createList(c10::TensorType::get(), items))->output();
  }

  // Gives the value in float32, at the insertion point. Constants are the same in all blocks.
  jit::Value* wide(jit::Value* value, const jit::Node& user) {
    if (const auto found = wide_.find(value); found != wide_.end()) return found->second;
    if (const auto known = constants_.tensor(value))
      return wide_.emplace(value, bind_constant(program_, own_copy(*known, c10::kFloat))).first->second;
    jit::Value* const result = cast_to_float(value, user);
    remember(value, result);
    return result;
  }

  jit::Value* cast_to_float(jit::Value* value, const jit::Node& user) {
    jit::Node* const from = value->node();
    return from->matches(kTo) && type_of(from->input(0)) == c10::kFloat
               ? insert_rounding(graph_, from->input(0), type_, user)
               : insert_cast(graph_, value, c10::kFloat, user);
  }

  void remember(jit::Value* value, jit::Value* wide) {
    if (wide_.emplace(value, wide).second) known_here_.push_back(value);
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
  const Writers writers_;
  const c10::ScalarType type_;
  // The graph has weights of the type. One that has none is no model but a function of the standard's, of which ONNX
  // expects that each step rounds.
  const bool has_weights_;
  std::unordered_map<const jit::Value*, jit::Value*> wide_;  // values that have not been rounded, by those that have
  std::vector<jit::Value*> known_here_;
};

// Tells whether a value of the block, or of one inside it, is a tensor of the type.
bool has_tensors(const jit::Block& block, c10::ScalarType type) {
  const auto is_one = [type](const jit::Value* value) { return type_of(value) == type; };
  return std::ranges::any_of(block.inputs(), is_one) || std::ranges::any_of(block.nodes(), [&](const jit::Node* node) {
           return std::ranges::any_of(node->outputs(), is_one) ||
                  std::ranges::any_of(node->blocks(),
                                      [type](const jit::Block* inner) { return has_tensors(*inner, type); });
         });
}

}  // namespace

void widen_halves(Program& program) {
  const c10::InferenceMode inference;
  for (const c10::ScalarType type : {c10::kHalf, c10::kBFloat16}) {
    if (!has_products(type, c10::kCPU) && has_tensors(*program.graph->block(), type)) Widening(program, type).run();
  }
}

}  // namespace onnxtorch
