#include <vector>

#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Tells whether a window has a size for each of so many dimensions; ATen takes one for all as well.
bool has_a_size_for_each(const jit::Node* node, size_t dimensions) {
  const jit::Value* const window = node->input(1);
  const auto sizes = jit::toIValue(window);
  if (sizes) return sizes->isIntList() && sizes->toIntVector().size() == dimensions;
  return window->node()->kind() == c10::prim::ListConstruct && window->node()->inputs().size() == dimensions;
}

// Replaces a pooling that has a size for each dimension, since our pools count the dimensions by the window's sizes.
void replace_sized(jit::Node* node, const char* name, size_t dimensions) {
  if (has_a_size_for_each(node, dimensions)) replace(node, name, node->inputs());
}

}  // namespace

void replace_pools(Program& program) {
  register_pools();
  for_each_node(program.graph->block(), [](jit::Node* node) {
    switch (node->kind()) {
      case c10::aten::max_pool1d:
        return replace(node, "onnx_torch::max_pool", node->inputs());
      case c10::aten::max_pool2d:
        return replace_sized(node, "onnx_torch::max_pool", 2);
      case c10::aten::max_pool3d:
        return replace_sized(node, "onnx_torch::max_pool", 3);
      case c10::aten::avg_pool2d:
        return replace_sized(node, "onnx_torch::average_pool", 2);
      case c10::aten::avg_pool3d:
        return replace_sized(node, "onnx_torch::average_pool", 3);
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
