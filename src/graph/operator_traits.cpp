#include "graph/operator_traits.h"

#include <string>
#include <string_view>
#include <unordered_map>

namespace onnxtorch {
namespace {

using Traits = uint16_t;

template <typename... All>
constexpr Traits all(All... traits) {
  return (static_cast<Traits>(traits) | ...);
}

struct Row {
  Traits traits;
  std::string_view operators;  // their names, of ATen where no namespace is given
};

using enum Trait;

// The traits of operators. An operator may be in several rows. A comparison of sizes, or the larger of two sizes, is no
// property of a shape: it may come out alike in all trials and yet differ in a run.
constexpr Row kTable[] = {
    {all(Unary, Computes),
     "abs acos acosh asin asinh atan atanh ceil celu clamp clamp_max clamp_min cos cosh elu erf exp expm1 floor gelu "
     "hardsigmoid hardswish leaky_relu log log1p mish neg reciprocal relu round rsqrt selu sigmoid sign silu sin sinh "
     "softplus sqrt square tan tanh trunc"},
    {all(Unary, Compares, IsMask), "isinf isnan"},
    {all(Unary, IsMask), "logical_not"},
    {all(Binary, Computes), "add div maximum minimum mul pow rsub sub"},
    {all(Binary, Compares, IsMask), "eq ge gt le lt ne"},
    {all(Binary, IsMask), "logical_and logical_or logical_xor"},
    {all(Ternary, Moves), "where"},
    {all(Arranges, Moves, KeepsType), "flatten permute reshape squeeze t transpose unflatten unsqueeze view view_as"},
    {all(Repeats, Moves, KeepsType), "expand expand_copy"},
    {all(Moves, KeepsType),
     "clone constant_pad_nd contiguous flip gather index_select masked_fill narrow pixel_shuffle repeat "
     "repeat_interleave select slice onnx_torch::gather onnx_torch::gather_elements"},
    {all(Moves), "cat stack"},
    {all(Product, Computes, KeepsType),
     "addmm convolution linear matmul mm onnx_torch::packed_nbits onnx_torch::packed_nbits_int8"},
    {all(Computes, KeepsType), "amax amin max_pool1d max_pool2d max_pool3d"},
    {all(Computes),
     "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d batch_norm bmm "
     "cumsum einsum group_norm gru instance_norm layer_norm log_softmax logsumexp lstm mean prelu prod rms_norm "
     "rnn_relu rnn_tanh scaled_dot_product_attention softmax sum upsample_bicubic2d upsample_bilinear2d "
     "upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d "
     "onnx_torch::cumsum onnx_torch::resampled"},
    {all(Compares), "argmax argmin"},
    {all(KeepsType),
     "bitwise_not chunk detach full_like index index_put ones_like split split_with_sizes tensor_split unbind "
     "zeros_like prim::unchecked_cast"},
    {all(Folds),
     "onnx_torch::cumprod onnx_torch::cumsum onnx_torch::double_linear onnx_torch::gather "
     "onnx_torch::gather_blocks onnx_torch::gather_elements onnx_torch::image_sums onnx_torch::label_of_largest "
     "onnx_torch::normalize_rows onnx_torch::pad onnx_torch::resample onnx_torch::scatter_rows "
     "onnx_torch::support_vectors"},
    {all(ReadsSizes), "__getitem__ size slice prim::ListConstruct prim::ListUnpack"},
    {all(ReadsSizes, ReadsRank), "dim is_floating_point len prim::dtype"},
};

std::unordered_map<c10::Symbol, Traits> read_table() {
  std::unordered_map<c10::Symbol, Traits> traits;
  for (auto [of_row, rest] : kTable) {
    while (!rest.empty()) {
      const std::string name(rest.substr(0, rest.find(' ')));
      rest.remove_prefix(std::min(rest.size(), name.size() + 1));
      traits[c10::Symbol::fromQualString(name.find(':') == std::string::npos ? "aten::" + name : name)] |= of_row;
    }
  }
  return traits;
}

}  // namespace

bool has(const torch::jit::Node* node, Trait trait) {
  static const std::unordered_map<c10::Symbol, Traits> table = read_table();
  const auto found = table.find(node->kind());
  return found != table.end() && (found->second & static_cast<Traits>(trait)) != 0;
}

}  // namespace onnxtorch
