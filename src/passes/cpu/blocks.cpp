#include "passes/cpu/blocks.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "graph/constants.h"
#include "graph/known_type.h"
#include "graph/operator_traits.h"
#include "graph/walk.h"
#include "graph/writes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// The scripts of src/ops/scripts/contrib/layouts.py, whose operands are images (N, C, H, W) and the size of a block.
const auto kFromBlocks = c10::Symbol::fromQualString("onnx_torch::from_blocks");
const auto kToBlocks = c10::Symbol::fromQualString("onnx_torch::to_blocks");

bool is_in_blocks(const jit::Value* value) { return value->node()->kind() == kToBlocks; }

class Blocks {
 public:
  explicit Blocks(Program& program) : graph_(*program.graph), constants_(program) {}

  void run() {
    for_each_node(graph_.block(), [&](jit::Node* node) {
      if (node->kind() == kFromBlocks || node->kind() == kToBlocks) {
        cancel(node);
      } else if (const auto operands = operands_in_blocks(node)) {
        move_out(node, *operands);
      }
    });
  }

 private:
  // Takes out two steps that undo each other: one that puts an image into blocks and one that takes it out of them.
  static void cancel(jit::Node* node) {
    const jit::Node* const other = node->input(0)->node();
    const bool undoes = other->kind() == (node->kind() == kFromBlocks ? kToBlocks : kFromBlocks);
    if (undoes && other->input(1) == node->input(1)) node->output()->replaceAllUsesWith(other->input(0));
  }

  // Gives the images in blocks of one size that a node computes from, element by element, or joins along their
  // channels.
  std::optional<std::vector<jit::Value*>> operands_in_blocks(jit::Node* node) const {
    std::vector<jit::Value*> operands;
    if (node->matches("aten::cat(Tensor[] tensors, int dim=0) -> Tensor")) {
      if (constants_.number(node->input(1)) != 1.0 || node->input(0)->node()->kind() != c10::prim::ListConstruct)
        return {};
      operands = node->input(0)->node()->inputs().vec();
    } else if (has(node, Trait::Unary, Trait::Binary)) {
      std::ranges::copy_if(node->inputs(), std::back_inserter(operands),
                           [&](const jit::Value* input) { return is_tensor(input) && !is_number(input); });
      if (!std::ranges::all_of(operands, [&](const jit::Value* one) { return is_alike(one, operands[0]); })) return {};
    }
    const bool fits = !operands.empty() && std::ranges::all_of(operands, [&](const jit::Value* operand) {
      return is_in_blocks(operand) && operand->node()->input(1) == operands[0]->node()->input(1);
    });
    return fits ? std::optional(operands) : std::nullopt;
  }

  // Tells whether a value is a constant tensor of one element, which adds no dimensions to an image.
  bool is_number(const jit::Value* value) const {
    const auto known = constants_.tensor(value);
    return known && known->defined() && known->numel() == 1 && known->dim() <= 4;
  }

  // Tells whether neither of two values is broadcast within an image.
  static bool is_alike(const jit::Value* a, const jit::Value* b) {
    const auto of_a = a->type()->expectRef<c10::TensorType>().sizes().sizes();
    const auto of_b = b->type()->expectRef<c10::TensorType>().sizes().sizes();
    if (a == b) return true;
    if (!of_a || !of_b || of_a->size() != 4 || of_b->size() != 4) return false;
    for (size_t i = 1; i < 4; ++i) {
      if (!(*of_a)[i] || (*of_a)[i] != (*of_b)[i]) return false;
    }
    return true;
  }

  void move_out(jit::Node* node, const std::vector<jit::Value*>& operands) {
    const jit::WithInsertPoint at(node);
    const auto plain = [&](jit::Value* of) {
      return std::ranges::find(operands, of) == operands.end() ? of : of->node()->input(0);
    };
    jit::Node* const same = graph_.createClone(node, plain);
    if (node->kind() == c10::aten::cat) {
      std::vector<jit::Value*> images;
      for (jit::Value* operand : operands) images.push_back(operand->node()->input(0));
      same->replaceInput(0, graph_.insertNode(graph_.createList(c10::TensorType::get(), images))->output());
    }
    same->setSourceRange(node->sourceRange());
    graph_.insertNode(same)->output()->setType(node->output()->type());
    jit::Node* const laid_out = graph_.create(kToBlocks, {same->output(), operands[0]->node()->input(1)});
    laid_out->setSourceRange(node->sourceRange());
    graph_.insertNode(laid_out)->output()->setType(node->output()->type());
    node->output()->replaceAllUsesWith(laid_out->output());
  }

  jit::Graph& graph_;
  const Constants constants_;
};

}  // namespace

void find_blocks(Program& program) {
  Blocks(program).run();
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
