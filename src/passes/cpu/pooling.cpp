#include <vector>

#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

}  // namespace

void replace_pools(Program& program) {
  register_pools();
  for_each_node(program.graph->block(), [](jit::Node* node) {
    switch (node->kind()) {
      case c10::aten::max_pool1d:
      case c10::aten::max_pool2d:
      case c10::aten::max_pool3d:
        return replace(node, "onnx_torch::max_pool", node->inputs());
      case c10::aten::avg_pool2d:
      case c10::aten::avg_pool3d:
        return replace(node, "onnx_torch::average_pool", node->inputs());
      case c10::aten::avg_pool1d: {
        const jit::WithInsertPoint at(node);
        std::vector<jit::Value*> inputs = node->inputs().vec();
        inputs.push_back(node->owningGraph()->insertConstant(c10::IValue()));
        return replace(node, "onnx_torch::average_pool", inputs);
      }
      default:
        return;
    }
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
