#include <ATen/ATen.h>

#include <algorithm>

#include "lower/onednn/fused.h"

namespace onnxtorch {
namespace onednn {
namespace {

using Tag = dnnl::memory::format_tag;
constexpr auto kFloat = dnnl::memory::data_type::f32;

Tag channels_last(int64_t dims) { return dims == 3 ? Tag::nwc : dims == 4 ? Tag::nhwc : Tag::ndhwc; }

// Strides with the channels innermost. A size of 1 takes the stride that it would have were it larger.
std::vector<int64_t> channels_last_strides(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = sizes[1];
  strides[1] = 1;
  for (size_t i = sizes.size() - 1; i >= 2; --i) {
    strides[i] = step;
    step *= sizes[i];
  }
  strides[0] = step;
  return strides;
}

class PackedConvolution final : public Fused {
 public:
  PackedConvolution(Convolution c, std::vector<PostOp> post_ops)
      : Fused(c.weight, c.bias, c.weight[0].numel(), std::move(post_ops)), convolution_(std::move(c)) {}

 private:
  bool fits(at::IntArrayRef sizes) const override {
    if (static_cast<int64_t>(sizes.size()) != weight_.dim()) return false;
    if (sizes[1] != weight_.size(1) * convolution_.groups) return false;
    return std::ranges::all_of(result_sizes(sizes), [](int64_t size) { return size > 0; });
  }

  std::vector<int64_t> strides(at::IntArrayRef sizes) const override { return channels_last_strides(sizes); }

  std::vector<int64_t> result_sizes(at::IntArrayRef sizes) const {
    const Convolution& c = convolution_;
    std::vector<int64_t> result = {sizes[0], weight_.size(0)};
    for (size_t i = 0; i < c.stride.size(); ++i) {
      const int64_t window = (weight_.sizes()[i + 2] - 1) * c.dilation[i] + 1;
      const int64_t room = sizes[i + 2] + 2 * c.padding[i] - window;
      result.push_back(room < 0 ? 0 : room / c.stride[i] + 1);
    }
    return result;
  }

  Prepared prepare(at::IntArrayRef given, std::span<const PostOp> post_ops) const override {
    const Convolution& c = convolution_;
    const dnnl::memory::dims sizes = result_sizes(given);
    dnnl::memory::dims weight_sizes = weight_.sizes().vec(), dilation = c.dilation;
    for (int64_t& step : dilation) --step;  // oneDNN counts what lies between
    if (c.groups > 1) {
      weight_sizes[0] /= c.groups;
      weight_sizes.insert(weight_sizes.begin(), c.groups);
    }
    const dnnl::memory::desc source(given.vec(), kFloat, channels_last(weight_.dim()));
    const dnnl::memory::desc result(sizes, kFloat, channels_last(weight_.dim()));
    const dnnl::memory::desc bias =
        bias_.defined() ? dnnl::memory::desc({bias_.numel()}, kFloat, Tag::a) : dnnl::memory::desc();
    const dnnl::convolution_forward::primitive_desc description(
        engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, source,
        {weight_sizes, kFloat, Tag::any}, bias, result, c.stride, dilation, c.padding, c.padding,
        attributes(post_ops, result));
    if (is_reference(description)) return {};
    dnnl::memory::dims weight_strides(weight_sizes.size());
    int64_t step = 1;
    for (size_t i = weight_sizes.size(); i-- > 0; step *= weight_sizes[i]) weight_strides[i] = step;
    const at::Tensor weight = weight_.contiguous();
    return {dnnl::convolution_forward(description),
            source,
            result,
            description.scratchpad_desc(),
            laid_.get(borrowed({weight_sizes, kFloat, weight_strides}, weight), description.weights_desc()),
            sizes,
            channels_last_strides(sizes)};
  }

  at::Tensor by_aten(const at::Tensor& x) const override {
    const Convolution& c = convolution_;
    const std::vector<int64_t> no_padding(c.stride.size());
    return at::convolution(x, weight_, bias_.defined() ? std::optional(bias_) : std::nullopt, c.stride, c.padding,
                           c.dilation, false, no_padding, c.groups);
  }

  const Convolution convolution_;
};

}  // namespace
}  // namespace onednn

c10::intrusive_ptr<Packed> packed(Convolution convolution, std::vector<PostOp> post_ops) {
  return c10::make_intrusive<onednn::PackedConvolution>(std::move(convolution), std::move(post_ops));
}

}  // namespace onnxtorch
