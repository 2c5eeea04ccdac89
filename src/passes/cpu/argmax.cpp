#include <torch/csrc/jit/ir/ir.h>

#include "graph/constants.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace jit = torch::jit;

void find_argmax(Program& program) {
  register_argmax();
  const Constants constants(program);
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    if (node->kind() == c10::aten::argmax && constants.get<int64_t>(node->input(1)))
      replace(node, "onnx_torch::argmax", node->inputs());
  });
}

}  // namespace onnxtorch
