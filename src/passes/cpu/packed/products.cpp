#include <torch/csrc/jit/ir/ir.h>

#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/onednn/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {

namespace jit = torch::jit;

void replace_products(Program& program) {
  register_onednn();
  for_each_node(program.graph->block(), [](jit::Node* node) {
    if (node->kind() == c10::aten::matmul) replace(node, "onnx_torch::matmul", node->inputs());
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
