#include <torch/csrc/jit/ir/ir.h>

#include "graph/known_type.h"
#include "graph/symbols.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// The fewest elements for which deciding whether to copy takes less time than copying.
constexpr size_t kLeastCopy = 1 << 12;

}  // namespace

void replace_copies(Program& program) {
  register_copies();
  for_each_node(program.graph->block(), [](jit::Node* node) {
    if (node->matches("aten::cat(Tensor[] tensors, int dim=0) -> Tensor")) {
      replace(node, "onnx_torch::cat", node->inputs());
    } else if (node->matches(
                   "aten::upsample_nearest2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? "
                   "scales_w=None) -> Tensor")) {
      replace(node, "onnx_torch::upsample_nearest2d", node->inputs());
    } else if (node->matches("aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor")) {
      replace(node, "onnx_torch::pixel_shuffle", node->inputs());
    } else if (node->matches(kReshape) && has_at_least(node->output(), kLeastCopy)) {
      replace(node, "onnx_torch::reshape", node->inputs());
    }
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
