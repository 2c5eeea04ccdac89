#include <torch/csrc/jit/ir/ir.h>

#include <cmath>
#include <map>

#include "graph/known_type.h"
#include "graph/walk.h"
#include "kernels/composite/operators.h"
#include "passes/cuda/passes.h"
#include "passes/general/attention_pattern.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Tells whether ATen's kernels may compute an attention: they keep the scores in float32. In float16 ONNX expects each
// step to be rounded. In bfloat16, where a mask hides a whole row by adding a large number, the result depends on how
// the scores are rounded.
bool is_taken(const Attention& found) {
  const auto type = type_of(found.query);
  const bool type_fits = found.mask ? type == c10::kFloat && type_of(found.mask) == c10::kFloat
                                    : type == c10::kFloat || type == c10::kBFloat16;
  return type_fits && found.scale > 0 && std::isfinite(found.scale);
}

// The masks as attention_mask makes them: one for all nodes that use a mask in the same way.
class Masks {
 public:
  jit::Value* of(jit::Value* mask, bool without_nan, const jit::Node* user) {
    jit::Value*& made = made_[{mask, without_nan}];
    if (!made) made = make(mask, without_nan, user);
    return made;
  }

 private:
  static jit::Value* make(jit::Value* mask, bool without_nan, const jit::Node* user) {
    jit::Node* const given = mask->node();
    const bool is_input = given->kind() == c10::prim::Param;
    const jit::WithInsertPoint at(is_input ? *given->owningBlock()->nodes().begin() : given->next());
    jit::Graph& graph = *given->owningGraph();
    jit::Value* const made = graph.insert(c10::Symbol::fromQualString("onnx_torch::attention_mask"),
                                          {mask, without_nan}, {}, user->sourceRange());
    return made->setType(mask->type());
  }

  std::map<std::pair<jit::Value*, bool>, jit::Value*> made_;
};

}  // namespace

void take_masks(Program& program) {
  register_masked_attention();
  Masks masks;
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    if (node->kind() != c10::aten::scaled_dot_product_attention) return;
    jit::Value* const mask = node->input(3);
    if (!mask->mustBeNone()) node->replaceInput(3, masks.of(mask, /*without_nan=*/true, node));
    replace(node, "onnx_torch::scaled_dot_product_attention", node->inputs());
    node->destroy();
  });
}

void fuse_attention(Program& program) {
  register_masked_attention();
  jit::Graph& graph = *program.graph;
  Masks masks;
  for_each_attention(program, [&](jit::Node* node, const Attention& found) {
    if (!is_taken(found)) return;
    jit::Value* const mask = found.mask ? masks.of(found.mask, found.without_nan, node) : nullptr;
    const jit::WithInsertPoint at(node);
    replace(node, "onnx_torch::scaled_dot_product_attention",
            {found.query, found.key, found.value, mask ? mask : graph.insertConstant(c10::IValue()),
             graph.insertConstant(found.scale), graph.insertConstant(found.without_nan)});
  });
}

}  // namespace onnxtorch
