#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/ir.h>

#include <map>

#include "graph/constants.h"
#include "graph/walk.h"
#include "passes/cuda/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Tells whether the GPU multiplies a type in blocks of matrices.
bool has_block_products(c10::ScalarType type, const Program& program) {
  return type == c10::kHalf || type == c10::kBFloat16 || (type == c10::kFloat && program.target.tf32);
}

std::optional<at::MemoryFormat> channels_last(const at::Tensor& weight) {
  if (weight.dim() == 4) return at::MemoryFormat::ChannelsLast;
  if (weight.dim() == 5) return at::MemoryFormat::ChannelsLast3d;
  return {};
}

}  // namespace

// Lays out weights with the channels last. ATen brings an image into the layout of the weight, and gives the result in
// it. So only the first of a row of convolutions has to move its image.
void lay_out_channels_last(Program& program) {
  const c10::InferenceMode inference;
  const Constants constants(program);
  std::map<jit::Value*, jit::Value*> made;
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    if (node->kind() != c10::aten::convolution) return;
    jit::Value* const given = node->input(1);
    const auto weight = constants.tensor(given);
    if (!weight || !weight->defined() || !has_block_products(weight->scalar_type(), program)) return;
    const auto format = channels_last(*weight);
    if (!format) return;
    jit::Value*& laid_out = made[given];
    if (!laid_out) laid_out = bind_constant(program, weight->clone(format));
    node->replaceInput(1, laid_out);
  });
}

}  // namespace onnxtorch
