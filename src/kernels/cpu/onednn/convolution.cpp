#include "kernels/cpu/onednn/convolution.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string_view>

#include "kernels/cpu/onednn/fused.h"
#include "kernels/cpu/onednn/operators.h"

namespace onnxtorch {
namespace onednn {

using Tag = dnnl::memory::format_tag;
constexpr auto kFloat = dnnl::memory::data_type::f32;

dnnl::memory::desc channels_last(at::IntArrayRef sizes, dnnl::memory::data_type type) {
  return {sizes.vec(), type, sizes.size() == 3 ? Tag::nwc : sizes.size() == 4 ? Tag::nhwc : Tag::ndhwc};
}

namespace {

dnnl::memory::dims grouped_sizes(const Convolution& c) {
  dnnl::memory::dims sizes = c.weight.sizes().vec();
  if (c.groups > 1) {
    sizes[0] /= c.groups;
    sizes.insert(sizes.begin(), c.groups);
  }
  return sizes;
}

// Describes the contiguous weight.
dnnl::memory::desc weight_of(const Convolution& c, dnnl::memory::data_type type) {
  const dnnl::memory::dims sizes = grouped_sizes(c);
  dnnl::memory::dims strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0; step *= sizes[i]) strides[i] = step;
  return {sizes, type, strides};
}

dnnl::convolution_forward::primitive_desc described(const Convolution& c, const dnnl::memory::desc& source,
                                                    dnnl::memory::data_type weight, const dnnl::memory::desc& result,
                                                    const dnnl::primitive_attr& attributes) {
  dnnl::memory::dims dilation = c.dilation;
  for (int64_t& step : dilation) --step;  // oneDNN counts the elements between two taps
  const dnnl::memory::desc bias =
      c.bias.defined() ? dnnl::memory::desc({c.bias.numel()}, kFloat, Tag::a) : dnnl::memory::desc();
  return {engine(),
          dnnl::prop_kind::forward_inference,
          dnnl::algorithm::convolution_direct,
          source,
          {grouped_sizes(c), weight, Tag::any},
          bias,
          result,
          c.stride,
          dilation,
          c.padding,
          c.padding,
          attributes,
          /*allow_empty=*/true};
}

bool is_depthwise(const Convolution& c) {
  return c.groups > 1 && c.weight.size(0) == c.groups && c.weight.size(1) == 1;
}

// Tells whether the direct depthwise convolution is better. oneDNN's first choice is a product of matrices, but the
// direct one takes down to half the time, unless the result has few columns.
bool is_better_depthwise(const Convolution& c, const dnnl::memory::desc& result) {
  constexpr int64_t kLeastColumns = 8;
  return is_depthwise(c) && result.get_dims().back() >= kLeastColumns;
}

// Tells whether the direct convolution is better. The columns that a product of matrices takes lie in the same lines of
// the cache where they are a multiple of 4 KiB apart; where windows overlap, that costs a quarter of its speed. The
// direct convolution is at its best with few taps.
bool is_better_direct(const Convolution& c, const dnnl::memory::desc& result) {
  constexpr int64_t kLeastColumns = 32, kMostTaps = 3, kSameLines = 4096;
  const bool is_one_dimensional = c.weight.dim() == 3;
  const int64_t taps = c.weight.sizes().back();
  const int64_t apart = c.stride.back() * c.weight.size(1) * static_cast<int64_t>(sizeof(float));
  return is_one_dimensional && c.groups == 1 && taps > c.stride.back() && taps <= kMostTaps &&
         apart % kSameLines == 0 && result.get_dims().back() >= kLeastColumns;
}

// Gives the beginning of the name of the implementation that is better than oneDNN's first choice; empty where none is.
std::string_view better_implementation(const Convolution& c, dnnl::memory::data_type weight,
                                       const dnnl::memory::desc& result) {
  if (weight != kFloat) return {};
  return is_better_depthwise(c, result) ? "jit_dw" : is_better_direct(c, result) ? "jit:avx512" : "";
}

// Tells whether a kernel goes beyond the image. oneDNN's one for AMX and windows of one pixel takes the pixels of an
// image in blocks of 9 to 16, two at a time: of three blocks it reads a fourth, and writes it, behind the image.
bool goes_beyond_the_image(const dnnl::convolution_forward::primitive_desc& description) {
  return std::string_view(description.impl_info_str()).starts_with("jit_1x1:avx512_core_amx");
}

// Goes on to the implementation whose name begins so; returns false where there is none.
bool take(dnnl::convolution_forward::primitive_desc& description, std::string_view name) {
  while (!std::string_view(description.impl_info_str()).starts_with(name)) {
    if (!description.next_impl()) return false;
  }
  return true;
}

}  // namespace

Prepared prepared_convolution(const Convolution& c, const dnnl::memory::desc& source, dnnl::memory::data_type weight,
                              const dnnl::memory::desc& result, const dnnl::primitive_attr& attributes,
                              const LaidWeight& laid) {
  auto description = described(c, source, weight, result, attributes);
  if (is_reference(description)) return {};
  if (!take(description, better_implementation(c, weight, result)))
    description = described(c, source, weight, result, attributes);
  if (goes_beyond_the_image(description) && !description.next_impl()) return {};
  const at::Tensor plain = c.weight.contiguous();
  const std::vector<int64_t> sizes = result.get_dims();
  return {dnnl::convolution_forward(description),
          source,
          result,
          description.scratchpad_desc(),
          laid.get(borrowed(weight_of(c, weight), plain), description.weights_desc()),
          sizes,
          channels_last_strides(sizes)};
}

namespace {

// Makes a convolution over one dimension one over images of one row.
Convolution over_images(Convolution c) {
  c.weight = c.weight.unsqueeze(2);
  c.stride.insert(c.stride.begin(), 1);
  c.padding.insert(c.padding.begin(), 0);
  c.dilation.insert(c.dilation.begin(), 1);
  return c;
}

// Tells whether an image is one column of pixels, and so is the result of its convolution. oneDNN goes along rows, and
// takes twice as long for columns.
bool is_column(const Convolution& c, at::IntArrayRef sizes) {
  return sizes.size() > 3 && sizes.back() == 1 && c.weight.sizes().back() == 1 && c.padding.back() == 0;
}

// Moves the last spatial dimension before the others: images of one column become images of one row, whose elements lie
// in memory alike.
std::vector<int64_t> turned(std::vector<int64_t> sizes, ptrdiff_t first_spatial) {
  std::rotate(sizes.begin() + first_spatial, sizes.end() - 1, sizes.end());
  return sizes;
}

Convolution turned(Convolution c) {
  c.weight = c.weight.movedim(-1, 2);
  for (std::vector<int64_t>* each : {&c.stride, &c.padding, &c.dilation}) *each = turned(*each, 0);
  return c;
}

class PackedConvolution final : public Fused {
 public:
  PackedConvolution(Convolution c, std::vector<PostOp> post_ops)
      : Fused(c.weight.contiguous(), c.bias, c.weight[0].numel(), c.result, std::move(post_ops)),
        convolution_(with_weight(std::move(c), form_)),
        // oneDNN has depthwise kernels for images alone.
        is_row_(form_.dim() == 3 && is_depthwise(convolution_)),
        described_(is_row_ ? over_images(convolution_) : convolution_) {
    const bool is_pointwise = form_.numel() == form_.size(0) * form_.size(1);
    const auto is_zero = [](int64_t padding) { return padding == 0; };
    if (is_pointwise && convolution_.groups == 1 && std::ranges::all_of(convolution_.padding, is_zero))
      take_rows(form_.flatten(1).t(), 1);  // images of one pixel
  }

 private:
  bool fits(at::IntArrayRef sizes) const override { return onnxtorch::fits(convolution_, sizes); }

  std::vector<int64_t> strides(at::IntArrayRef sizes) const override { return channels_last_strides(sizes); }

  Prepared prepare(at::IntArrayRef given, std::span<const PostOp> post_ops) const override {
    std::vector<int64_t> sizes = given.vec();
    if (is_row_) sizes.insert(sizes.begin() + 2, 1);
    const bool turns = is_column(described_, sizes);
    if (turns) sizes = turned(sizes, 2);
    const Convolution c = turns ? turned(described_) : described_;
    const auto type = named(form_.scalar_type());
    const dnnl::memory::desc result = channels_last(result_sizes(c, sizes), named(result_));
    Prepared prepared =
        prepared_convolution(c, channels_last(sizes, type), type, result, attributes(post_ops, result), laid_);
    prepared.sizes = result_sizes(convolution_, given);
    prepared.strides = channels_last_strides(prepared.sizes);
    return prepared;
  }

  at::Tensor by_aten(const at::Tensor& x) const override {
    const Convolution& c = convolution_;
    const std::vector<int64_t> no_padding(c.stride.size());
    const auto bias = bias_.defined() ? std::optional(bias_.to(form_.scalar_type())) : std::nullopt;
    if (x.numel() == 0 && x.dim() == form_.dim()) {  // which ATen refuses, but for an empty batch
      const std::vector<int64_t> sizes = result_sizes(c, x.sizes());
      std::vector<int64_t> along(sizes.size(), 1);
      along[1] = -1;
      if (are_sizes(sizes)) return bias ? bias->reshape(along).expand(sizes).clone() : at::zeros(sizes, x.options());
    }
    return at::convolution(x, laid_.plain(), bias, c.stride, c.padding, c.dilation, false, no_padding, c.groups);
  }

  const Convolution convolution_;
  const bool is_row_;
  const Convolution described_;  // as oneDNN is to take it
};

}  // namespace
}  // namespace onednn

c10::intrusive_ptr<Packed> packed(Convolution convolution, std::vector<PostOp> post_ops) {
  return c10::make_intrusive<onednn::PackedConvolution>(std::move(convolution), std::move(post_ops));
}

}  // namespace onnxtorch
