#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <string_view>

#include "graph/known_type.h"
#include "graph/program.h"
#include "graph/walk.h"
#include "kernels/composite/operators.h"
#include "passes/cuda/passes.h"

namespace onnxtorch {
namespace {

struct TakesIntegers {
  const char* of_aten;
  const char* name;
};

constexpr TakesIntegers kOperators[] = {
    {"aten::matmul", "onnx_torch::matmul_of_any"},
    {"aten::mm", "onnx_torch::matmul_of_any"},
    {"aten::addmm", "onnx_torch::addmm_of_any"},
    {"aten::einsum", "onnx_torch::einsum_of_any"},
    {"aten::max_pool1d_with_indices", "onnx_torch::max_pool1d_with_indices_of_any"},
    {"aten::max_pool2d_with_indices", "onnx_torch::max_pool2d_with_indices_of_any"},
    {"aten::max_pool3d_with_indices", "onnx_torch::max_pool3d_with_indices_of_any"},
};

// All tensors of these operators are of one type.
bool may_be_integers(const torch::jit::Node* node) {
  const auto is_of_other_type = [](const torch::jit::Value* value) {
    const auto type = type_of(value);
    return type && !c10::isIntegralType(*type, /*includeBool=*/false);
  };
  return std::ranges::none_of(node->inputs(), is_of_other_type) && !is_of_other_type(node->output(0));
}

}  // namespace

void take_integers(Program& program) {
  register_integer_operators();
  for_each_node(program.graph->block(), [](torch::jit::Node* node) {
    const std::string_view name = node->kind().toQualString();
    const auto* const found = std::ranges::find(kOperators, name, [](const TakesIntegers& op) { return op.of_aten; });
    if (found == std::end(kOperators) || !may_be_integers(node)) return;
    replace(node, found->name, node->inputs());
    node->destroy();
  });
}

}  // namespace onnxtorch
