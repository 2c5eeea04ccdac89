#include "lower/onednn/products.h"

#include <torch/csrc/jit/ir/ir.h>

#include "lower/attention.h"
#include "lower/onednn/packed.h"
#include "lower/row_attention.h"
#include "passes/walk.h"
#include "translate/writes.h"

namespace onnxtorch {

namespace jit = torch::jit;

void find_attention(Program& program) {
  register_onednn();
  jit::Graph& graph = *program.graph;
  for_each_attention(program, [&](jit::Node* node, const Attention& found) {
    const jit::WithInsertPoint at(node);
    jit::Value* const mask = found.mask ? found.mask : graph.insertConstant(c10::IValue());
    replace(node, "onnx_torch::attention",
            {found.query, found.key, found.value, mask, graph.insertConstant(found.scale),
             graph.insertConstant(found.without_nan)});
  });
  replace_attention(program);
}

void replace_products(Program& program) {
  register_onednn();
  for_each_node(program.graph->block(), [](jit::Node* node) {
    if (node->kind() == c10::aten::matmul) replace(node, "onnx_torch::matmul", node->inputs());
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
