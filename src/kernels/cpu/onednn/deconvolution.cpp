#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/cpu/onednn/convolution.h"
#include "kernels/cpu/onednn/fused.h"
#include "kernels/cpu/onednn/operators.h"

namespace onnxtorch {
namespace onednn {
namespace {

using Tag = dnnl::memory::format_tag;

// Tells whether there is one parameter of each kind for each dimension, and oneDNN can cut off as much at the end as
// they say.
bool is_regular(const Deconvolution& d) {
  const size_t dims = static_cast<size_t>(d.weight.dim()) - 2;
  for (const auto* each : {&d.stride, &d.padding, &d.output_padding, &d.dilation}) {
    if (each->size() != dims) return false;
  }
  for (size_t i = 0; i < dims; ++i) {
    if (d.padding[i] - d.output_padding[i] + d.stride[i] < 0) return false;
  }
  return true;
}

std::vector<int64_t> result_sizes(const Deconvolution& d, at::IntArrayRef sizes) {
  std::vector<int64_t> result = {sizes[0], d.weight.size(1) * d.groups};
  for (size_t i = 0; i < d.stride.size(); ++i) {
    const int64_t window = (d.weight.sizes()[i + 2] - 1) * d.dilation[i] + 1;
    result.push_back((sizes[i + 2] - 1) * d.stride[i] + window - 2 * d.padding[i] + d.output_padding[i]);
  }
  return result;
}

// Gives the weight with the groups as a dimension, and the channels of the result before those of the input, as oneDNN
// counts them.
at::Tensor grouped(const Deconvolution& d) {
  if (d.groups == 1) return d.weight.transpose(0, 1);
  return d.weight.unflatten(0, {d.groups, -1}).transpose(1, 2);
}

// Tells whether there are few channels to compute, for which ATen's way by one product and a sum over the windows is
// the faster one.
bool has_few_results(const Deconvolution& d) {
  constexpr int64_t kFew = 4;
  return d.weight.dim() == 4 && d.groups == 1 && d.weight.size(1) < kFew &&
         std::ranges::all_of(d.dilation, [](int64_t step) { return step == 1; });
}

// Tells whether each channel is by itself, where oneDNN is slow.
bool is_depthwise(const Deconvolution& d) {
  return d.groups > 1 && d.weight.size(0) == d.groups && d.weight.size(1) == 1;
}

class PackedDeconvolution final : public Fused {
 public:
  explicit PackedDeconvolution(Deconvolution d)
      : Fused(d.weight, {}, d.weight.numel() / d.weight.size(1) / d.groups, c10::kFloat, {}),
        of_(with_weight(std::move(d), form_)) {}

 private:
  bool fits(at::IntArrayRef sizes) const override {
    if (static_cast<int64_t>(sizes.size()) != form_.dim() || sizes[1] != form_.size(0)) return false;
    if (!is_regular(of_) || has_few_results(of_) || is_depthwise(of_)) return false;
    return std::ranges::all_of(result_sizes(of_, sizes), [](int64_t size) { return size > 0; });
  }

  std::vector<int64_t> strides(at::IntArrayRef sizes) const override { return channels_last_strides(sizes); }

  Prepared prepare(at::IntArrayRef given, std::span<const PostOp> steps) const override {
    const std::vector<int64_t> sizes = result_sizes(of_, given);
    const auto type = named(c10::kFloat);
    const dnnl::memory::desc source = channels_last(given, type), result = channels_last(sizes, type);
    const at::Tensor weight = grouped(of_);
    dnnl::memory::dims dilation = of_.dilation, end = of_.padding;
    for (int64_t& step : dilation) --step;  // oneDNN counts the elements between two taps
    for (size_t i = 0; i < end.size(); ++i) end[i] -= of_.output_padding[i];
    const dnnl::deconvolution_forward::primitive_desc description(
        engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::deconvolution_direct, source,
        {weight.sizes().vec(), type, Tag::any}, result, of_.stride, dilation, of_.padding, end,
        attributes(steps, result), /*allow_empty=*/true);
    if (is_reference(description)) return {};
    const dnnl::memory plain = borrowed({weight.sizes().vec(), type, weight.strides().vec()}, weight);
    return {dnnl::deconvolution_forward(description),
            source,
            result,
            description.scratchpad_desc(),
            laid_.get(plain, description.weights_desc()),
            sizes,
            channels_last_strides(sizes)};
  }

  // ATen refuses empty images, and slow_conv_transpose2d empty batches.
  at::Tensor by_aten(const at::Tensor& x) const override {
    if (x.numel() == 0 && x.dim() == form_.dim()) {
      const std::vector<int64_t> sizes = result_sizes(of_, x.sizes());
      if (are_sizes(sizes)) return at::zeros(sizes, x.options());
    }
    if (has_few_results(of_) && is_regular(of_) && x.is_cpu() && x.dim() == 4 && x.scalar_type() == c10::kFloat) {
      return at::slow_conv_transpose2d(x, laid_.plain(), form_.sizes().slice(2), {}, of_.stride, of_.padding,
                                       of_.output_padding, of_.dilation);
    }
    return at::convolution(x, laid_.plain(), {}, of_.stride, of_.padding, of_.dilation, true, of_.output_padding,
                           of_.groups);
  }

  const Deconvolution of_;
};

}  // namespace
}  // namespace onednn

c10::intrusive_ptr<Packed> packed(Deconvolution deconvolution) {
  return c10::make_intrusive<onednn::PackedDeconvolution>(std::move(deconvolution));
}

}  // namespace onnxtorch
