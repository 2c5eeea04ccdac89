#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "graph/pattern.h"
#include "graph/walk.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Tells whether the node takes the mean over all dimensions but the first two, and keeps those as ones of size 1.
bool gives_channel_means(jit::Node* node, const Constants& constants) {
  if (!node->matches(
          "aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor")) {
    return false;
  }
  const auto rank = node->input(0)->type()->expectRef<c10::TensorType>().sizes().size();
  const auto dims = constants(node->input(1));
  if (!rank || *rank < 3 || !dims || !dims->isIntList() || constants.get<bool>(node->input(2)) != true ||
      !node->input(3)->mustBeNone()) {
    return false;
  }
  std::vector<int64_t> given = dims->toIntVector(), expected(*rank - 2);
  for (int64_t& dim : given) dim = at::maybe_wrap_dim(dim, static_cast<int64_t>(*rank));
  std::ranges::sort(given);
  std::iota(expected.begin(), expected.end(), 2);
  return given == expected;
}

}  // namespace

void find_channel_means(Program& program) {
  register_channel_means();
  const Constants constants(program);
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    if (gives_channel_means(node, constants)) replace(node, "onnx_torch::channel_means", node->inputs().slice(0, 1));
  });
}

}  // namespace onnxtorch
