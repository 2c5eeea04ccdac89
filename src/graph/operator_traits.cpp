#include "graph/operator_traits.h"

#include <string>
#include <string_view>
#include <unordered_map>

namespace onnxtorch {
namespace {

using Traits = uint32_t;

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
// property of a shape: it may come out alike in all trials and yet differ in a run. Nor is a product of sizes, such as a
// number of elements or a stride, which a form decides all the same; nor a device, of which translating knows nothing.
// What reads sizes gives no form where it takes them out of a list, or makes a list of them. A length is no kind, as
// that of a tensor is a size. What gives sizes by data for some operands alone (where, index, repeat_interleave, …) is
// told apart by those who see the operands (form_follows, waits_for).
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
     "onnx_torch::linear_attention onnx_torch::normalize_rows onnx_torch::pad onnx_torch::resample "
     "onnx_torch::scatter_elements onnx_torch::scatter_rows onnx_torch::support_vectors"},
    {all(SizedByData),
     "nonzero nonzero_numpy argwhere masked_select _unique _unique2 unique_dim unique_consecutive "
     "unique_dim_consecutive bincount linalg_lstsq onnx_torch::unique onnx_torch::non_max_suppression "
     "onnx_torch::unique_strings onnx_torch::string_split onnx_torch::split_sparse onnx_torch::regex_split "
     "onnx_torch::tokenize onnx_torch::word_pieces onnx_torch::byte_pairs onnx_torch::dynamic_time_warping "
     "onnx_torch::image_decoder"},
    {all(ReadsSizes), "__getitem__ size slice prim::ListConstruct prim::ListUnpack"},
    {all(ReadsSizes, ReadsRank), "dim is_floating_point len prim::dtype"},
    {all(ReadsForm), "is_complex len numel size stride sym_numel sym_size"},
    {all(ReadsForm, ReadsKind), "dim is_floating_point prim::device prim::dtype"},
};

// Gives the operators of a row.
std::vector<c10::Symbol> operators_of(const Row& row) {
  std::vector<c10::Symbol> operators;
  for (std::string_view rest = row.operators; !rest.empty();) {
    const std::string name(rest.substr(0, rest.find(' ')));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    operators.push_back(c10::Symbol::fromQualString(name.find(':') == std::string::npos ? "aten::" + name : name));
  }
  return operators;
}

std::unordered_map<c10::Symbol, Traits> read_table() {
  std::unordered_map<c10::Symbol, Traits> traits;
  for (const Row& row : kTable) {
    for (const c10::Symbol op : operators_of(row)) traits[op] |= row.traits;
  }
  return traits;
}

}  // namespace

bool has(const torch::jit::Node* node, Trait trait) {
  static const std::unordered_map<c10::Symbol, Traits> table = read_table();
  const auto found = table.find(node->kind());
  return found != table.end() && (found->second & static_cast<Traits>(trait)) != 0;
}

std::vector<c10::Symbol> operators_with(Trait trait) {
  std::vector<c10::Symbol> operators;
  for (const Row& row : kTable) {
    if ((row.traits & static_cast<Traits>(trait)) == 0) continue;
    const std::vector<c10::Symbol> more = operators_of(row);
    operators.insert(operators.end(), more.begin(), more.end());
  }
  return operators;
}

}  // namespace onnxtorch
