#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "graph/pattern.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::Symbol;

void find_softmax(Program& program) {
  const char* const pattern = R"(graph(%x, %dim, %dtype):
    %y : Tensor = aten::softmax(%x, %dim, %dtype)
    return (%y))";
  rewrite(program, pattern, [](const Found& found, jit::Graph& graph) -> jit::Value* {
    if (!found["dtype"]->mustBeNone() || !found.is_last("dim", "x")) return nullptr;
    return graph.insert(Symbol::fromQualString("onnx_torch::softmax"), {found["x"]});
  });
}

void find_normalized_rows(Program& program) {
  const char* const pattern = R"(graph(%x, %dims, %keep, %none, %zero, %one):
    %a : Tensor = aten::abs(%x)
    %s : Tensor = aten::sum(%a, %dims, %keep, %none)
    %z : Tensor = aten::eq(%s, %zero)
    %d : Tensor = aten::where(%z, %one, %s)
    %y : Tensor = aten::div(%x, %d)
    return (%y))";
  rewrite(program, pattern, [](const Found& found, jit::Graph& graph) -> jit::Value* {
    const bool fits = found.constants.get<std::vector<int64_t>>(found["dims"]) == std::vector<int64_t>{-1} &&
                      found.constants.get<bool>(found["keep"]) == true && found["none"]->mustBeNone() &&
                      found.is("zero", 0) && found.is("one", 1);
    return fits ? graph.insert(Symbol::fromQualString("onnx_torch::normalize_rows"), {found["x"]}) : nullptr;
  });
}

void find_labels(Program& program) {
  const char* const pattern = R"(graph(%scores, %labels, %dim, %keep, %axis):
    %i : Tensor = aten::argmax(%scores, %dim, %keep)
    %y : Tensor = aten::index_select(%labels, %axis, %i)
    return (%y))";
  rewrite(program, pattern, [](const Found& found, jit::Graph& graph) -> jit::Value* {
    const bool fits = found.is("dim", 1) && found.is("axis", 0) && found.constants.get<bool>(found["keep"]) == false;
    if (!fits) return nullptr;
    return graph.insert(Symbol::fromQualString("onnx_torch::label_of_largest"), {found["scores"], found["labels"]});
  });
}

// Whether the node takes the mean over all dimensions but the first two, and keeps these.
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

void replace_operators(Program& program) {
  const Constants constants(program);
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    if (gives_channel_means(node, constants)) {
      replace(node, "onnx_torch::channel_means", node->inputs().slice(0, 1));
    } else if (node->kind() == c10::aten::argmax && constants.get<int64_t>(node->input(1))) {
      replace(node, "onnx_torch::argmax", node->inputs());
    } else if (node->kind() == c10::aten::layer_norm) {
      replace(node, "onnx_torch::layer_norm", node->inputs().slice(0, 5));
    } else if (node->kind() == c10::aten::rms_norm) {
      replace(node, "onnx_torch::rms_norm", node->inputs());
    }
  });
  eliminate_dead_code(program.graph);
}

}  // namespace

void replace_rows(Program& program) {
  register_rows();
  find_softmax(program);
  find_normalized_rows(program);
  find_labels(program);
  replace_operators(program);
  find_running(program);
}

}  // namespace onnxtorch
