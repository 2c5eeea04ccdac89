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

// Tells whether a node may work on integers. All tensors of these operators are of one type.
bool may_be_integers(const torch::jit::Node* node) {
  const auto is_of_other_type = [](const torch::jit::Value* value) {
    const auto type = type_of(value);
    return type && !c10::isIntegralType(*type, /*includeBool=*/false);
  };
  return std::ranges::none_of(node->inputs(), is_of_other_type) && !is_of_other_type(node->output(0));
}

bool is_double(const torch::jit::Node* node) { return type_of(node->output(0)) == c10::kDouble; }

struct OfAnyType {
  const char* of_aten;
  const char* name;
  bool (*is_wanted)(const torch::jit::Node*);
};

constexpr OfAnyType kOperators[] = {
    {"aten::matmul", "onnx_torch::matmul_of_any", may_be_integers},
    {"aten::mm", "onnx_torch::matmul_of_any", may_be_integers},
    {"aten::addmm", "onnx_torch::addmm_of_any", may_be_integers},
    {"aten::einsum", "onnx_torch::einsum_of_any", may_be_integers},
    {"aten::max_pool1d_with_indices", "onnx_torch::max_pool1d_with_indices_of_any", may_be_integers},
    {"aten::max_pool2d_with_indices", "onnx_torch::max_pool2d_with_indices_of_any", may_be_integers},
    {"aten::max_pool3d_with_indices", "onnx_torch::max_pool3d_with_indices_of_any", may_be_integers},
    {"aten::hardsigmoid", "onnx_torch::hardsigmoid_of_any", is_double},
    {"aten::hardswish", "onnx_torch::hardswish_of_any", is_double},
};

}  // namespace

void take_all_types(Program& program) {
  register_operators_of_any_type();
  for_each_node(program.graph->block(), [](torch::jit::Node* node) {
    const std::string_view name = node->kind().toQualString();
    const auto* const found = std::ranges::find(kOperators, name, [](const OfAnyType& op) { return op.of_aten; });
    if (found == std::end(kOperators) || !found->is_wanted(node)) return;
    replace(node, found->name, node->inputs());
    node->destroy();
  });
}

}  // namespace onnxtorch
