#include <torch/csrc/jit/ir/ir.h>

#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

}  // namespace

void find_resampling(Program& program) {
  register_resample();
  const auto resampled = c10::Symbol::fromQualString("onnx_torch::resampled");
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    if (node->kind() == resampled) replace(node, "onnx_torch::resample", node->inputs());
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
