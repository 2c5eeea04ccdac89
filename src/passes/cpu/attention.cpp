#include <torch/csrc/jit/ir/ir.h>

#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"
#include "passes/general/attention_pattern.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

}  // namespace

void find_attention(Program& program) {
  register_attention();
  jit::Graph& graph = *program.graph;
  for_each_attention(program, [&](jit::Node* node, const Attention& found) {
    const jit::WithInsertPoint at(node);
    jit::Value* const mask = found.mask ? found.mask : graph.insertConstant(c10::IValue());
    replace(node, "onnx_torch::attention",
            {found.query, found.key, found.value, mask, graph.insertConstant(found.scale),
             graph.insertConstant(found.without_nan)});
  });
  for_each_node(graph.block(), [](jit::Node* node) {
    if (node->kind() == c10::aten::scaled_dot_product_attention) replace(node, "onnx_torch::attention", node->inputs());
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
