// Convolutions and products of int8 and uint8: sums in int32, which are exact, then scaled, rounded and kept within
// range.
#include <ATen/ATen.h>
#include <c10/util/strides.h>

#include <limits>

#include "base/arrange.h"
#include "base/fork_safe.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/onednn/convolution.h"
#include "kernels/cpu/onednn/fused.h"
#include "kernels/cpu/onednn/integer_product.h"
#include "kernels/cpu/onednn/operators.h"
#include "kernels/cpu/quantized/panel_product.h"
#include "kernels/cpu/quantized/quantize.h"

namespace onnxtorch {
namespace onednn {
namespace {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

// Gives the scale of each result, in units of which the bias is added and the steps are done.
at::Tensor unit_of(const Quantized& q, bool has_steps) {
  const at::Tensor unit = at::mul(q.scales, q.input.scale);
  return q.result && !has_steps ? at::div(unit, q.result->scale) : unit;
}

bool is_narrower_than_type(const Quantization& q) {
  const auto lowest = q.type == c10::kByte ? 0 : -128;
  return q.low > lowest || q.high < lowest + 255;
}

// A quantized product, by oneDNN where this CPU has instructions for it, else by kernels of our own.
class QuantizedProduct : public ByteProduct<PackedProduct> {
 public:
  QuantizedProduct(const at::Tensor& weight, const at::Tensor& bias, Quantized quantized, std::vector<PostOp> post_ops)
      : ByteProduct(weight),
        quantized_(std::move(quantized)),
        post_ops_(std::move(post_ops)),
        unit_(unit_of(quantized_, !post_ops_.empty()).contiguous()),
        bias_(!bias.defined()                          ? bias
              : quantized_.result && post_ops_.empty() ? at::div(bias, quantized_.result->scale).contiguous()
                                                       : bias.contiguous()),
        zero_point_(at::full({1}, quantized_.input.zero_point, c10::kInt)) {}

  at::Tensor run(const at::Tensor& given, at::TensorList) const override {
    if (given.scalar_type() != quantized_.input.type || given.numel() == 0 || !takes(given.sizes()))
      return in_float(given);
    const at::Tensor x = arranged(given, strides(given.sizes()));
    if (!cpu_features().int8_products) return by_panels(x);
    const std::shared_ptr<const Prepared> p = prepared(x.sizes());
    if (!p->primitive) return in_float(x);

    const at::Tensor y = work_tensor(p->sizes, p->strides, quantized_.result ? quantized_.result->type : c10::kFloat);
    execute(*p, x.data_ptr(), y.data_ptr());
    return y;
  }

  std::unique_ptr<PlannedCall> planned(const at::Tensor& x, at::TensorList, const at::Tensor& y) const override {
    const bool fits = is_plain(x, quantized_.input.type) && takes(x.sizes()) && cpu_features().int8_products &&
                      arranged(x, strides(x.sizes())).is_same(x);
    if (!fits) return {};
    std::shared_ptr<const Prepared> p = prepared(x.sizes());
    if (!p->primitive || y.strides() != at::IntArrayRef(p->strides)) return {};
    const auto self = c10::intrusive_ptr<QuantizedProduct>::reclaim_copy(const_cast<QuantizedProduct*>(this));
    return onnxtorch::planned([self, p = std::move(p)](std::span<const TensorPlace> places) {
      self->execute(*p, places[0].data, places[1].data);
    });
  }

 protected:
  virtual std::vector<int64_t> strides(at::IntArrayRef sizes) const = 0;
  virtual dnnl::memory::desc bias_of(const Prepared& p) const = 0;
  // Makes the same product for a dequantized input.
  virtual c10::intrusive_ptr<Packed> of_float(std::vector<PostOp> post_ops) const = 0;

  Type source_type() const { return named(quantized_.input.type); }
  Type result_type() const { return quantized_.result ? named(quantized_.result->type) : Type::f32; }

  // `result` describes a float result, `mask` the dimensions of the weight that have scales.
  dnnl::primitive_attr attributes_for(const dnnl::memory::desc& result, int mask) const {
    dnnl::primitive_attr attr = attributes(post_ops_, result);
    dnnl::post_ops steps = attr.get_post_ops();
    if (const auto& to = quantized_.result) {
      using dnnl::algorithm;
      const auto zero_point = static_cast<float>(to->zero_point);
      if (!post_ops_.empty()) steps.append_eltwise(algorithm::eltwise_linear, 1 / static_cast<float>(to->scale), 0);
      if (to->zero_point != 0) steps.append_eltwise(algorithm::eltwise_round, 0, 0);
      if (is_narrower_than_type(*to)) {
        steps.append_eltwise(algorithm::eltwise_clip, static_cast<float>(to->low) - zero_point,
                             static_cast<float>(to->high) - zero_point);
      }
      if (to->zero_point != 0) steps.append_eltwise(algorithm::eltwise_linear, 1, zero_point);
    }
    attr.set_post_ops(steps);
    attr.set_scales_mask(DNNL_ARG_WEIGHTS, unit_.numel() == 1 ? 0 : mask);
    if (quantized_.input.zero_point != 0) attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
    return attr;
  }

  const Quantized quantized_;
  const std::vector<PostOp> post_ops_;
  const at::Tensor unit_, bias_, zero_point_;

 private:
  void execute(const Prepared& p, void* x, void* y) const {
    Call call(p.frames);
    call.with(DNNL_ARG_SRC, p.source, x).with(DNNL_ARG_WEIGHTS, p.weight.memory).with(DNNL_ARG_DST, p.result, y);
    call.with(DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, {{unit_.numel()}, Type::f32, Tag::a}, unit_);
    if (quantized_.input.zero_point != 0)
      call.with(DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, {{1}, Type::s32, Tag::a}, zero_point_);
    if (bias_.defined()) call.with(DNNL_ARG_BIAS, bias_of(p), bias_);
    call.run(p.primitive, p.scratchpad);
  }

  at::Tensor by_panels(const at::Tensor& x) const {
    const auto& to = quantized_.result;
    const int64_t zero_point = quantized_.input.zero_point;
    if (post_ops_.empty()) return panels().finished(laid_, x, zero_point, {unit_, bias_, to});
    return quantized(apply(panels().finished(laid_, x, zero_point, {unit_, bias_, {}}), post_ops_, {}));
  }

  at::Tensor in_float(const at::Tensor& x) const {
    made_([&] { float_ = of_float(post_ops_); });
    return quantized(static_cast<const PackedProduct&>(*float_).run(
        dequantize(x, quantized_.input.scale, quantized_.input.zero_point), {}));
  }

  // Quantizes y, if the result is to be quantized.
  at::Tensor quantized(const at::Tensor& y) const {
    const auto& to = quantized_.result;
    return to ? quantize(y, to->scale, to->zero_point, to->low, to->high, to->type) : y;
  }

  mutable Once made_;
  mutable c10::intrusive_ptr<Packed> float_;
};

class QuantizedConvolution final : public QuantizedProduct {
 public:
  QuantizedConvolution(Convolution c, Quantized quantized, std::vector<PostOp> post_ops)
      : QuantizedProduct(c.weight.contiguous(), c.bias, std::move(quantized), std::move(post_ops)),
        convolution_(with_weight(std::move(c), laid_.form())),
        panels_(convolution_) {}

 private:
  bool fits(at::IntArrayRef sizes) const override { return onnxtorch::fits(convolution_, sizes); }
  std::vector<int64_t> strides(at::IntArrayRef sizes) const override { return channels_last_strides(sizes); }
  dnnl::memory::desc bias_of(const Prepared&) const override { return {{bias_.numel()}, Type::f32, Tag::a}; }
  const PanelProduct& panels() const override { return panels_; }

  Prepared prepare(at::IntArrayRef given) const override {
    const std::vector<int64_t> sizes = result_sizes(convolution_, given);
    const int mask = convolution_.groups > 1 ? 1 << 0 | 1 << 1 : 1 << 0;
    return prepared_convolution(convolution_, channels_last(given, source_type()), Type::s8,
                                channels_last(sizes, result_type()),
                                attributes_for(channels_last(sizes, Type::f32), mask), laid_);
  }

  c10::intrusive_ptr<Packed> of_float(std::vector<PostOp> post_ops) const override {
    return packed(with_weight(convolution_, dequantize_along(laid_.plain(), quantized_.scales, 0)),
                  std::move(post_ops));
  }

  const Convolution convolution_;
  const PanelProduct panels_;
};

class QuantizedLinear final : public QuantizedProduct {
 public:
  QuantizedLinear(const Linear& linear, Quantized quantized, std::vector<PostOp> post_ops)
      : QuantizedProduct(linear.weight, linear.bias, std::move(quantized), std::move(post_ops)),
        linear_bias_(linear.bias),
        panels_(laid_.form()) {}

 private:
  bool fits(at::IntArrayRef sizes) const override { return !sizes.empty() && sizes.back() == laid_.form().size(0); }

  std::vector<int64_t> strides(at::IntArrayRef sizes) const override {
    const auto result = c10::contiguous_strides(sizes);
    return {result.begin(), result.end()};
  }

  dnnl::memory::desc bias_of(const Prepared&) const override { return {{1, bias_.numel()}, Type::f32, Tag::ab}; }
  const PanelProduct& panels() const override { return panels_; }

  Prepared prepare(at::IntArrayRef from) const override {
    return prepared_product(laid_.form(), from, source_type(), result_type(), bias_.defined(),
                            attributes_for({{1, laid_.form().size(1)}, Type::f32, Tag::ab}, 1 << 1), laid_);
  }

  c10::intrusive_ptr<Packed> of_float(std::vector<PostOp> post_ops) const override {
    return packed(Linear{dequantize_along(laid_.plain(), quantized_.scales, 1), linear_bias_}, std::move(post_ops));
  }

  const at::Tensor linear_bias_;
  const PanelProduct panels_;
};

}  // namespace
}  // namespace onednn

c10::intrusive_ptr<Packed> packed(Convolution convolution, Quantized quantized, std::vector<PostOp> post_ops) {
  return c10::make_intrusive<onednn::QuantizedConvolution>(std::move(convolution), std::move(quantized),
                                                           std::move(post_ops));
}

c10::intrusive_ptr<Packed> packed(const Linear& linear, Quantized quantized, std::vector<PostOp> post_ops) {
  return c10::make_intrusive<onednn::QuantizedLinear>(linear, std::move(quantized), std::move(post_ops));
}

}  // namespace onnxtorch
