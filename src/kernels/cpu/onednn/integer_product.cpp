#include "kernels/cpu/onednn/integer_product.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "base/arrange.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/onednn/convolution.h"
#include "kernels/cpu/onednn/operators.h"
#include "kernels/cpu/quantized/panel_product.h"
#include "kernels/cpu/quantized/shifted_weight.h"
#include "kernels/cpu/quantized/sums.h"

namespace onnxtorch {
namespace onednn {

using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

Prepared prepared_product(const at::Tensor& weight, at::IntArrayRef from, Type source_type, Type result_type,
                          bool has_bias, const dnnl::primitive_attr& attributes, const LaidWeight& laid) {
  const int64_t in = weight.size(0), out = weight.size(1), rows = c10::multiply_integers(from) / in;
  std::vector<int64_t> sizes = from.vec();
  sizes.back() = out;
  const dnnl::memory::desc source({rows, in}, source_type, Tag::ab), result({rows, out}, result_type, Tag::ab),
      wanted({in, out}, Type::s8, Tag::any);
  const dnnl::memory::desc bias = has_bias ? dnnl::memory::desc({1, out}, Type::f32, Tag::ab) : dnnl::memory::desc();
  const dnnl::matmul::primitive_desc description(engine(), source, wanted, bias, result, attributes,
                                                 /*allow_empty=*/true);
  if (is_reference(description)) return {};
  const dnnl::memory::desc given({in, out}, Type::s8, weight.strides().vec());
  const auto strides = c10::contiguous_strides(sizes);
  return {dnnl::matmul(description),
          source,
          result,
          description.scratchpad_desc(),
          laid.get(borrowed(given, weight), description.weights_desc()),
          sizes,
          {strides.begin(), strides.end()}};
}

namespace {

// Gives one value for each channel of a tensor of so many dimensions, `after` of them after the channel's; none where
// adding or multiplying by it means something else.
std::optional<at::Tensor> per_channel(const at::Tensor& t, int64_t channels, int64_t dims, int64_t after) {
  if (t.scalar_type() != c10::kFloat || t.dim() > dims) return {};
  const bool lies_so = t.dim() > after && t.numel() == channels && t.size(-1 - after) == channels;
  if (!lies_so && t.numel() != 1) return {};
  return t.reshape(-1).expand(channels).contiguous();
}

// An input as uint8, with the zero point by which its elements stand for the same numbers.
struct Numbers {
  at::Tensor x;
  int64_t zero_point;
};

Numbers as_unsigned(const at::Tensor& x, int64_t zero_point) {
  if (x.scalar_type() == c10::kByte) return {x, zero_point};
  return {at::bitwise_xor(x.view(c10::kByte), 128), zero_point + 128};
}

class PackedIntegers : public ByteProduct<PackedIntegerProduct> {
 public:
  explicit PackedIntegers(const ShiftedWeight& weight)
      : ByteProduct(weight.form(), [weight] { return weight.numbers(); }), weight_(weight) {
    weight_.forget_numbers();
  }

  at::Tensor run(const at::Tensor& x, const at::Tensor& zero_point) const override {
    const auto sums = sums_of(x, zero_point);
    if (!sums) return plainly(x, zero_point);
    correct(sums->sums, sums->correction);
    return sums->sums;
  }

  at::Tensor run_scaled(const at::Tensor& x, const at::Tensor& zero_point, const at::Tensor& scale,
                        at::TensorList addends, bool relu) const override {
    Scaling scaling;
    scaling.relu = relu;
    const bool fits = take_scale(scaling, scale, x.dim());
    const auto sums = fits ? sums_of(x, zero_point) : std::nullopt;
    if (sums && take_addends(scaling, addends, sums->sums)) return scaled(sums->sums, sums->correction, scaling);
    if (sums) correct(sums->sums, sums->correction);
    at::Tensor y = at::mul((sums ? sums->sums : run(x, zero_point)).to(c10::kFloat), scale);
    for (const at::Tensor& addend : addends) y = at::add(y, addend);
    return relu ? at::relu(y) : y;
  }

 protected:
  // Gives how many dimensions come after the channels', as ATen counts them.
  virtual int64_t dims_after_channels() const = 0;
  // Gives the input as the primitive takes it, with the zero point around it.
  virtual at::Tensor with_padding(const Numbers& given) const = 0;
  // Gives the sum of the elements that make each row of the result.
  virtual at::Tensor row_sums(const at::Tensor& padded) const = 0;
  // Computes the sums in double, of x less its zero point.
  virtual at::Tensor in_double(const at::Tensor& x, const at::Tensor& weight) const = 0;

  ShiftedWeight weight_;  // without its numbers

 private:
  struct Sums {
    at::Tensor sums;
    Correction correction;
  };

  // Computes the sums of x and the numbers of the weight, and their correction. oneDNN's zero points would make the
  // sums floats, which are not exact.
  std::optional<Sums> sums_of(const at::Tensor& x, const at::Tensor& zero_point) const {
    const bool fit = (x.scalar_type() == c10::kByte || x.scalar_type() == c10::kChar) && x.numel() > 0 &&
                     zero_point.numel() == 1 && takes(x.sizes());
    if (!fit) return {};
    const Numbers numbers = as_unsigned(x, zero_point.item().toLong());
    const at::Tensor source = with_padding(numbers);
    if (!cpu_features().int8_products)
      return Sums{panels().sums(laid_, source), correction(source, numbers.zero_point)};
    const std::shared_ptr<const Prepared> p = prepared(source.sizes());
    if (!p->primitive) return {};
    const at::Tensor y = work_tensor(p->sizes, p->strides, c10::kInt);
    Call call(p->frames);
    call.with(DNNL_ARG_SRC, p->source, source).with(DNNL_ARG_WEIGHTS, p->weight.memory);
    call.with(DNNL_ARG_DST, p->result, y).run(p->primitive, p->scratchpad);
    return Sums{y, correction(source, numbers.zero_point)};
  }

  Correction correction(const at::Tensor& x, int64_t zero_point) const {
    const at::Tensor offsets = at::empty({weight_.channels()}, c10::kInt);
    weight_.offsets(zero_point, offsets.data_ptr<int32_t>());
    return {offsets, weight_.shifts(), weight_.has_shifts() ? row_sums(x) : at::Tensor()};
  }

  bool take_scale(Scaling& scaling, const at::Tensor& scale, int64_t dims) const {
    const auto scales = per_channel(scale, weight_.channels(), dims, dims_after_channels());
    if (scales) scaling.scales = *scales;
    return scales.has_value();
  }

  bool take_addends(Scaling& scaling, at::TensorList addends, const at::Tensor& sums) const {
    for (const at::Tensor& addend : addends) {
      const auto bias = per_channel(addend, weight_.channels(), sums.dim(), dims_after_channels());
      if (bias && !scaling.bias.defined() && !scaling.operand.defined()) {
        scaling.bias = *bias;
      } else if (!scaling.operand.defined() && addend.sizes() == sums.sizes() && is_plain(addend)) {
        scaling.operand = arranged(addend, sums.strides());
      } else {
        return false;
      }
    }
    return true;
  }

  at::Tensor plainly(const at::Tensor& x, const at::Tensor& zero_point) const {
    return in_double(at::sub(x.to(c10::kDouble), zero_point), weight_.in_double(laid_.plain()))
        .to(c10::kLong)
        .to(c10::kInt);
  }
};

Convolution without_padding(Convolution c) {
  std::ranges::fill(c.padding, 0);
  return c;
}

class IntegerConvolution final : public PackedIntegers {
 public:
  IntegerConvolution(Convolution c, const ShiftedWeight& weight)
      : PackedIntegers(weight),
        convolution_(with_weight(std::move(c), laid_.form())),
        unpadded_(without_padding(convolution_)),
        panels_(unpadded_) {}

 private:
  bool fits(at::IntArrayRef sizes) const override { return onnxtorch::fits(convolution_, sizes); }
  int64_t dims_after_channels() const override { return static_cast<int64_t>(weight_.sizes().size()) - 2; }

  std::vector<int64_t> padded(at::IntArrayRef sizes) const override {
    std::vector<int64_t> result = sizes.vec();
    for (size_t i = 2; i < result.size(); ++i) result[i] += 2 * convolution_.padding[i - 2];
    return result;
  }

  at::Tensor with_padding(const Numbers& given) const override {
    const std::vector<int64_t> sizes = padded(given.x.sizes()), strides = channels_last_strides(sizes);
    if (given.x.sizes() == at::IntArrayRef(sizes)) return arranged(given.x, strides);
    const at::Tensor result = at::empty_strided(sizes, strides, c10::kByte).fill_(given.zero_point);
    at::Tensor inside = result;
    for (int64_t i = 2; i < inside.dim(); ++i) inside = inside.narrow(i, convolution_.padding[i - 2], given.x.size(i));
    inside.copy_(given.x);
    return result;
  }

  Prepared prepare(at::IntArrayRef given) const override {
    return prepared_convolution(unpadded_, channels_last(given, Type::u8), Type::s8,
                                channels_last(result_sizes(unpadded_, given), Type::s32), attributes({}, {}), laid_);
  }

  // Sums over the window of each pixel, one dimension after another.
  at::Tensor row_sums(const at::Tensor& x) const override {
    std::vector<int64_t> shape = x.sizes().vec();
    shape.erase(shape.begin() + 1);
    const int64_t channels = x.size(1);
    at::Tensor sums = sums_of_rows(at::as_strided(x, {x.numel() / channels, channels}, {channels, 1})).reshape(shape);
    const std::vector<int64_t> results = result_sizes(unpadded_, x.sizes());
    for (int64_t i = 1; i < sums.dim(); ++i) {
      const int64_t stride = unpadded_.stride[i - 1], dilation = unpadded_.dilation[i - 1];
      const auto shifted_by = [&](int64_t start) {
        return sums.slice(i, start, start + (results[i + 1] - 1) * stride + 1, stride);
      };
      at::Tensor sum = shifted_by(0);
      for (int64_t k = 1; k < weight_.sizes()[i + 1]; ++k) sum = at::add(sum, shifted_by(k * dilation));
      sums = sum;
    }
    return sums.contiguous();
  }

  at::Tensor in_double(const at::Tensor& x, const at::Tensor& weight) const override {
    const Convolution& c = convolution_;
    const std::vector<int64_t> no_padding(c.stride.size());
    return at::convolution(x, weight, {}, c.stride, c.padding, c.dilation, false, no_padding, c.groups);
  }

  const PanelProduct& panels() const override { return panels_; }

  const Convolution convolution_, unpadded_;
  const PanelProduct panels_;
};

class IntegerLinear final : public PackedIntegers {
 public:
  explicit IntegerLinear(const ShiftedWeight& weight) : PackedIntegers(weight), panels_(laid_.form()) {}

  std::unique_ptr<PlannedCall> planned_scaled(const at::Tensor& x, const at::Tensor& zero_point,
                                              const at::Tensor& scale, at::TensorList addends, bool relu,
                                              const at::Tensor& y) const override {
    const auto is_one = [](const at::Tensor& t, c10::ScalarType type) { return is_plain(t, type) && t.numel() == 1; };
    const bool fits = cpu_features().int8_products && is_plain(x, c10::kByte) && x.is_contiguous() &&
                      takes(x.sizes()) && is_one(zero_point, c10::kByte) && is_one(scale, c10::kFloat);
    const auto roles = fits ? roles_of(addends, y) : std::nullopt;
    const int64_t rows = x.numel() / weight_.terms();
    const bool is_enlarged = y.numel() != rows * weight_.channels();  // by an addend
    if (!roles || is_enlarged || !y.is_contiguous()) return {};
    std::shared_ptr<const Prepared> p = prepared(x.sizes());
    if (!p->primitive) return {};
    const auto self = c10::intrusive_ptr<IntegerLinear>::reclaim_copy(const_cast<IntegerLinear*>(this));
    const size_t result = 3 + addends.size();
    return onnxtorch::planned([=, roles = *roles](std::span<const TensorPlace> places) {
      const auto addend = [&](std::optional<size_t> i) { return i ? places[3 + *i].as<float>() : nullptr; };
      self->compute_scaled(*p, places[0].as<uint8_t>(), rows, *places[1].as<uint8_t>(), *places[2].as<float>(),
                           addend(roles.bias), addend(roles.operand), relu, places[result].as<float>());
    });
  }

 private:
  bool fits(at::IntArrayRef sizes) const override { return !sizes.empty() && sizes.back() == weight_.terms(); }
  int64_t dims_after_channels() const override { return 0; }
  at::Tensor with_padding(const Numbers& given) const override { return given.x.contiguous(); }

  // The index of the addend that is added to each channel, and of the one that is added to each element.
  struct Roles {
    std::optional<size_t> bias, operand;
  };

  // Gives the roles of the addends; none where one has neither role, as in take_addends.
  std::optional<Roles> roles_of(at::TensorList addends, const at::Tensor& y) const {
    Roles roles;
    for (size_t i = 0; i < addends.size(); ++i) {
      const at::Tensor& t = addends[i];
      if (!is_plain(t) || !t.is_contiguous()) return {};
      const bool is_bias =
          t.dim() > 0 && t.dim() <= y.dim() && t.numel() == t.size(-1) && t.numel() == weight_.channels();
      if (is_bias && !roles.bias && !roles.operand) {
        roles.bias = i;
      } else if (!roles.operand && t.sizes() == y.sizes()) {
        roles.operand = i;
      } else {
        return {};
      }
    }
    return roles;
  }

  void compute_scaled(const Prepared& p, uint8_t* x, int64_t rows, uint8_t zero_point, float scale, const float* bias,
                      const float* operand, bool relu, float* y) const {
    const int64_t channels = weight_.channels();
    Call call(p.frames);
    call.with(DNNL_ARG_SRC, p.source, x).with(DNNL_ARG_WEIGHTS, p.weight.memory);
    call.with(DNNL_ARG_DST, p.result, y).run(p.primitive, p.scratchpad);
    std::vector<int32_t> offsets(channels), row_sums(weight_.has_shifts() ? rows : 0);
    weight_.offsets(zero_point, offsets.data());
    if (weight_.has_shifts()) add_rows(x, row_sums.data(), rows, weight_.terms());
    const std::vector<float> scales(channels, scale), no_bias(bias ? 0 : channels, kNoBias);
    const SumSteps steps{offsets.data(), weight_.shifts().const_data_ptr<int32_t>(), scales.data(),
                         bias ? bias : no_bias.data(), relu ? 0.0F : -std::numeric_limits<float>::infinity()};
    scale_rows(y, rows, channels, steps, weight_.has_shifts() ? row_sums.data() : nullptr, operand);
  }

  Prepared prepare(at::IntArrayRef sizes) const override {
    return prepared_product(laid_.form(), sizes, Type::u8, Type::s32, false, attributes({}, {}), laid_);
  }

  at::Tensor row_sums(const at::Tensor& x) const override { return sums_of_rows(x.reshape({-1, weight_.terms()})); }

  at::Tensor in_double(const at::Tensor& x, const at::Tensor& weight) const override { return at::matmul(x, weight); }

  const PanelProduct& panels() const override { return panels_; }

  const PanelProduct panels_;
};

}  // namespace
}  // namespace onednn

c10::intrusive_ptr<Packed> packed_integers(Convolution convolution, const at::Tensor& zero_points) {
  const ShiftedWeight weight(convolution.weight, zero_points, 0);
  if (convolution.groups > 1 && weight.has_shifts()) return {};
  return c10::make_intrusive<onednn::IntegerConvolution>(std::move(convolution), weight);
}

c10::intrusive_ptr<Packed> packed_integers(const Linear& linear, const at::Tensor& zero_points) {
  return c10::make_intrusive<onednn::IntegerLinear>(ShiftedWeight(linear.weight, zero_points, 1));
}

}  // namespace onnxtorch
