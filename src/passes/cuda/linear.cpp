#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/ir.h>

#include "graph/constants.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "passes/cuda/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Tells whether the constants are a matrix [in, out] and a number for each index of a product's last dimension.
bool are_weight_and_bias(const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias) {
  return weight && weight->defined() && weight->dim() == 2 && weight->is_floating_point() && bias && bias->defined() &&
         bias->dim() > 0 && bias->scalar_type() == weight->scalar_type() && bias->numel() == weight->size(1) &&
         bias->size(-1) == weight->size(1);
}

}  // namespace

void find_linear(Program& program) {
  const c10::InferenceMode inference;
  const Constants constants(program);
  jit::Graph& graph = *program.graph;
  for_each_node(graph.block(), [&](jit::Node* node) {
    if (node->kind() != c10::aten::add || node->inputs().size() != 3 || constants.number(node->input(2)) != 1) return;
    for (const size_t i : {0, 1}) {
      const jit::Node* const product = node->input(i)->node();
      if (product->kind() != c10::aten::matmul || product->output()->uses().size() != 1) continue;
      const auto weight = constants.tensor(product->input(1)), bias = constants.tensor(node->input(1 - i));
      const auto rank = product->output()->type()->expectRef<c10::TensorType>().dim();
      if (!rank || !are_weight_and_bias(weight, bias) || *rank < static_cast<size_t>(bias->dim())) continue;
      const jit::WithInsertPoint at(node);
      jit::Value* const transposed = graph.insert(c10::aten::t, {product->input(1)});
      replace(node, "aten::linear",
              {product->input(0), transposed->setType(c10::TensorType::get()),
               bind_constant(program, bias->flatten().contiguous())});
      return;
    }
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
