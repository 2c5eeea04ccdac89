#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/SDPBackend.h>
#include <torch/library.h>

#include <limits>
#include <optional>

#include "base/registered.h"
#include "kernels/composite/attention_mask.h"
#include "kernels/composite/operators.h"

namespace onnxtorch {
namespace {

using at::Tensor;

// Gives a mask that has the given one's effect in ATen's kernels. They multiply sums of scores and mask by log2(e) in
// float32, where the lowest number of float32, and that of bfloat16, overflows and a row of it becomes zeros: half of
// it hides as well. They also make zeros of rows of nothing but -inf; these rows become NaN here, unless zeros are
// wanted.
Tensor attention_mask(const Tensor& mask, bool without_nan) {
  if (mask.scalar_type() != at::kFloat && mask.scalar_type() != at::kBFloat16) {
    TORCH_CHECK(without_nan, "a mask of ", mask.scalar_type(), " cannot be given NaN");
    return mask;
  }
  constexpr auto kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kLow = std::numeric_limits<float>::lowest() / 2;
  const Tensor hidden = at::eq(mask, -kInfinity);
  Tensor result = at::clamp_min(mask, kLow).masked_fill_(hidden, -kInfinity);
  if (!without_nan) result.masked_fill_(hidden.all(-1, /*keepdim=*/true), std::numeric_limits<double>::quiet_NaN());
  return result;
}

std::optional<Tensor> attention_mask_or_none(const std::optional<Tensor>& mask, bool without_nan) {
  return mask ? std::optional(attention_mask(*mask, without_nan)) : std::nullopt;
}

// Tells whether a kernel may read rows of the matrices in pieces of 16 bytes.
bool is_aligned(const Tensor& t) {
  constexpr int64_t kElements = 8;
  bool aligned = t.storage_offset() % kElements == 0;
  for (int64_t i = 0; i + 1 < t.dim(); ++i) aligned = aligned && (t.size(i) == 1 || t.stride(i) % kElements == 0);
  return aligned;
}

// The arguments of ATen's operator besides its tensors.
struct Asked {
  std::optional<double> scale;
  bool is_causal = false;
  bool enable_gqa = false;  // heads of keys and values serve several of queries each
};

// Tells whether ATen has a fused kernel for tensors of four dimensions, and one whose source says that it gives what
// the products would. Some of its kernels take neither empty tensors nor more batches or heads than a grid has blocks,
// and none takes a mask that broadcasts the scores.
bool is_fused(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
              const Asked& asked) {
  constexpr int64_t kMostBlocks = 65535;
  const int64_t batch = query.size(0), heads = query.size(1), rows = query.size(2), keys = key.size(2);
  const auto has_same_batch = [&](const Tensor& t) {
    return t.size(0) == batch && (asked.enable_gqa || t.size(1) == heads);
  };
  if (!has_same_batch(key) || !has_same_batch(value) || batch > kMostBlocks || heads > kMostBlocks) return false;
  if (query.numel() == 0 || key.numel() == 0 || value.numel() == 0) return false;
  if (!is_aligned(query) || !is_aligned(key) || !is_aligned(value)) return false;
  const bool mask_fits =
      !mask || (mask->size(-1) == keys && at::is_expandable_to(mask->sizes(), {batch, heads, rows, keys}));
  if (!mask_fits) return false;
  const auto kernel = static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(query, key, value, mask, 0, asked.is_causal, asked.scale, asked.enable_gqa));
  return kernel == at::SDPBackend::flash_attention || kernel == at::SDPBackend::efficient_attention;
}

Tensor with_batch(Tensor t) {
  while (t.dim() < 4) t = t.unsqueeze(0);
  return t;
}

// Computes softmax(query @ key * scale + mask) @ value. The mask is one of attention_mask.
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
                 double scale, bool without_nan) {
  const int64_t dims = query.dim();
  if ((dims == 3 || dims == 4) && key.dim() == dims && value.dim() == dims && (!mask || mask->dim() <= dims)) {
    const Tensor rows = with_batch(query), keys = with_batch(key).transpose(-2, -1), values = with_batch(value);
    const std::optional<Tensor> added = mask ? std::optional(with_batch(*mask)) : std::nullopt;
    if (is_fused(rows, keys, values, added, {.scale = scale})) {
      const Tensor result = at::scaled_dot_product_attention(rows, keys, values, added, 0, false, scale);
      return dims == 4 ? result : result.squeeze(0);
    }
  }
  Tensor scores = at::matmul(at::mul(query, scale), key);
  if (mask) scores = at::add(scores, *mask);
  const Tensor weights = at::softmax(scores, -1);
  return at::matmul(without_nan ? at::nan_to_num(weights, 0.0) : weights, value);
}

// Runs ATen's scaled_dot_product_attention, which takes a mask of attention_mask. It computes the products where ATen's
// own choice is a kernel that may refuse the operands.
Tensor attention_by_aten(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
                         double dropout_p, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  TORCH_CHECK(dropout_p == 0, "attention with dropout");
  const bool has_batch = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && (!mask || mask->dim() <= 4);
  const std::optional<Tensor> given = mask && has_batch ? std::optional(with_batch(*mask)) : mask;
  if (has_batch && is_fused(query, key, value, given, {scale, is_causal, enable_gqa}))
    return at::scaled_dot_product_attention(query, key, value, given, 0, is_causal, scale, enable_gqa);
  const std::optional<Tensor> added = mask ? std::optional(added_mask(*mask, query.scalar_type())) : std::nullopt;
  return std::get<0>(
      at::_scaled_dot_product_attention_math(query, key, value, added, 0, is_causal, {}, scale, enable_gqa));
}

}  // namespace

void register_masked_attention() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("attention_mask(Tensor mask, bool without_nan) -> Tensor", attention_mask);
    m.def("attention_mask.or_none(Tensor? mask, bool without_nan) -> Tensor?", attention_mask_or_none);
    m.def(
        "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? mask, float scale, "
        "bool without_nan) -> Tensor",
        attention);
    m.def(
        "scaled_dot_product_attention.of_aten(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float "
        "dropout_p, bool is_causal, float? scale, bool enable_gqa) -> Tensor",
        attention_by_aten);
  });
}

at::Tensor added_mask(const at::Tensor& mask, c10::ScalarType type) {
  if (mask.scalar_type() != c10::kBool) return mask;
  return at::zeros(mask.sizes(), mask.options().dtype(type))
      .masked_fill_(mask.logical_not(), -std::numeric_limits<double>::infinity());
}

}  // namespace onnxtorch
