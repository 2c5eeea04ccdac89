#include <torch/csrc/jit/ir/ir.h>

#include "graph/walk.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {

namespace jit = torch::jit;

void find_layer_norm(Program& program) {
  register_layer_norm();
  for_each_node(program.graph->block(), [](jit::Node* node) {
    if (node->kind() == c10::aten::layer_norm) replace(node, "onnx_torch::layer_norm", node->inputs().slice(0, 5));
    if (node->kind() == c10::aten::rms_norm) replace(node, "onnx_torch::rms_norm", node->inputs());
  });
}

}  // namespace onnxtorch
