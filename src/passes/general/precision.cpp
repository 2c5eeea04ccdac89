#include "passes/general/precision.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>

#include "graph/constants.h"
#include "graph/known_type.h"
#include "graph/operator_traits.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"
#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Gives the inputs of a convolution or a product that must be of one type; none for other nodes.
at::ArrayRef<jit::Value*> operands_of(jit::Node* node) {
  if (!has(node, Trait::Product) || !node->maybeOperator()) return {};
  return node->inputs().slice(0, std::min<size_t>(node->inputs().size(), 3));  // with a bias, maybe
}

// The lowering of products of float32 with constant weights. They are computed in another type, or, of operands that
// are rounded to it, in float32.
class Lowering {
 public:
  Lowering(Program& program, c10::ScalarType type, bool stays_float)
      : program_(program), graph_(*program.graph), constants_(program), type_(type), stays_float_(stays_float) {}

  void run(jit::Block* block) {
    std::unordered_map<jit::Value*, jit::Value*> lowered;  // good for the rest of the block
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      jit::Node* const node = *it++;
      for (jit::Block* inner : node->blocks()) run(inner);
      if (std::ranges::any_of(operands_of(node), [&](const jit::Value* operand) { return is_weight(operand); }))
        lower(node, lowered);
    }
  }

 private:
  bool is_weight(const jit::Value* operand) const {
    const auto known = constants_.tensor(operand);
    const bool fits = known && known->defined() && known->dim() >= 2 && known->scalar_type() == c10::kFloat;
    // The elements of a depthwise convolution are sums of few products, and rounding takes as long.
    const bool is_depthwise = fits && known->dim() >= 3 && known->size(1) == 1;
    return fits && !(is_depthwise && stays_float_);
  }

  void lower(jit::Node* node, std::unordered_map<jit::Value*, jit::Value*>& lowered) {
    {
      const jit::WithInsertPoint before(node);
      for (size_t i = 0; i < operands_of(node).size(); ++i) {
        jit::Value* const given = node->input(i);
        if (given->mustBeNone()) continue;
        jit::Value*& value = lowered[given];
        if (!value) value = lowered_value(given, *node);
        node->replaceInput(i, value);
      }
    }
    if (stays_float_) return;
    const jit::WithInsertPoint after(node->next());
    jit::Value* const result = node->output();
    jit::Value* const restored = insert_cast(graph_, result, c10::kFloat, *node);
    result->setType(type_like(result, type_));
    result->replaceAllUsesAfterNodeWith(restored->node(), restored);
  }

  jit::Value* lowered_value(jit::Value* value, const jit::Node& user) {
    if (const auto known = constants_.tensor(value)) {
      const at::Tensor rounded = known->to(type_);
      return bind_constant(program_, stays_float_ ? rounded.to(c10::kFloat) : rounded);
    }
    return stays_float_ ? insert_rounding(graph_, value, type_, user) : insert_cast(graph_, value, type_, user);
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
  const c10::ScalarType type_;
  const bool stays_float_;
};

jit::Value* inserted(jit::Graph& graph, jit::Node* made, const jit::Value* of, c10::ScalarType type,
                     const jit::Node& user) {
  made->setSourceRange(user.sourceRange());
  made->output()->setType(type_like(of, type));
  return graph.insertNode(made)->output();
}

}  // namespace

c10::ScalarType precision_of(const std::string& name) {
  if (name == "float32") return c10::kFloat;
  if (name == "bfloat16") return c10::kBFloat16;
  if (name == "float16") return c10::kHalf;
  throw InputError("precision must be float32, bfloat16 or float16, not " + name);
}

bool has_products(c10::ScalarType type, c10::Device device) {
  return !device.is_cpu() || (type == c10::kBFloat16 && cpu_features().bfloat16_products);
}

jit::Value* insert_cast(jit::Graph& graph, jit::Value* value, c10::ScalarType type, const jit::Node& user) {
  jit::Node* const made =
      graph.create(c10::aten::to, {value, graph.insertConstant(type), graph.insertConstant(false),
                                   graph.insertConstant(false), graph.insertConstant(c10::IValue())});
  return inserted(graph, made, value, type, user);
}

jit::Value* insert_rounding(jit::Graph& graph, jit::Value* value, c10::ScalarType type, const jit::Node& user) {
  register_rounding();
  const auto kind = c10::Symbol::fromQualString("onnx_torch::rounded");
  return inserted(graph, graph.create(kind, {value, graph.insertConstant(type)}), value, c10::kFloat, user);
}

void lower_precision(Program& program) {
  const c10::InferenceMode inference;
  const c10::ScalarType type = program.target.precision;
  Lowering(program, type, !has_products(type, program.target.device)).run(program.graph->block());
}

}  // namespace onnxtorch
