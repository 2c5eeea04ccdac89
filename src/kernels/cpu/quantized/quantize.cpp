#include "kernels/cpu/quantized/quantize.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/parallel.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/simd/quantized/quantize.h"

namespace onnxtorch::onednn {
namespace {

Quantization quantization(double scale, int64_t zero_point, int64_t low, int64_t high) {
  return {static_cast<float>(scale), static_cast<float>(low - zero_point), static_cast<float>(high - zero_point),
          static_cast<int32_t>(zero_point)};
}

Dequantization dequantization(double scale, int64_t zero_point) {
  return {static_cast<float>(scale), static_cast<int32_t>(zero_point)};
}

Range united(const Range& a, const Range& b) {
  if (!(a.low <= a.high)) return a;
  if (!(b.low <= b.high)) return b;
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

// Calls the function with the kernels for the type.
template <typename Function>
void for_type(at::ScalarType type, const Function& function) {
  TORCH_CHECK(type == c10::kByte || type == c10::kChar, "expected numbers of 8 bits, got ", type);
  const auto& kernels = for_this_cpu<QuantizeKernels>();
  if (type == c10::kByte) {
    function(kernels.of_uint8);
  } else {
    function(kernels.of_int8);
  }
}

at::Tensor dense(const at::Tensor& x) { return x.is_non_overlapping_and_dense() ? x : x.contiguous(); }

// A tensor of 8 bits with its scale and zero point, or floats, which are taken as they are.
struct Operand {
  at::Tensor x;
  double scale;
  int64_t zero_point;

  at::Tensor values() const { return x.is_floating_point() ? x : dequantize(x, scale, zero_point); }
};

// Both operands element by element, in one pass by one of the kernels for numbers and floats; nothing where they are of
// other types, or one is broadcast that is no row of floats.
template <typename KernelsOf>
std::optional<at::Tensor> joined(const Operand& a, const Operand& b, Joining by, at::ScalarType type, Quantization to,
                                 const KernelsOf& kernels_of) {
  const at::Tensor &x = a.x, &other = b.x;
  const bool is_floating = other.is_floating_point();
  const bool fits =
      x.scalar_type() == type && x.numel() > 0 && other.scalar_type() == (is_floating ? c10::kFloat : type);
  const bool alike = fits && x.sizes() == other.sizes() && x.strides() == other.strides();
  const bool row = fits && is_floating && x.is_contiguous() && other.is_contiguous() && x.dim() > 0 &&
                   other.dim() > 0 && other.dim() <= x.dim() && other.numel() == other.size(-1) &&
                   other.size(-1) == x.size(-1);
  if (!alike && !row) return {};
  const at::Tensor y = work_tensor(x.sizes(), x.strides(), type);
  const Dequantization of_a = dequantization(a.scale, a.zero_point), of_b = dequantization(b.scale, b.zero_point);
  for_type(type, [&]<typename T>(const QuantizeKernels::Of<T>& kernels) {
    const T* const first = x.const_data_ptr<T>();
    T* const result = y.data_ptr<T>();
    const auto join = [&]<typename B>(const B* second, const auto& join_block) {
      const int64_t length = alike ? 1 : other.numel();
      parallel_for(x.numel() / length, length, [&](int64_t begin, int64_t end) {
        if (alike) return join_block(first + begin, of_a, second + begin, of_b, by, result + begin, end - begin, to);
        for (int64_t i = begin * length; i < end * length; i += length)
          join_block(first + i, of_a, second, of_b, by, result + i, length, to);
      });
    };
    const auto [of_numbers, of_floats] = kernels_of(kernels);
    is_floating ? join(other.const_data_ptr<float>(), of_floats) : join(other.const_data_ptr<T>(), of_numbers);
  });
  return y;
}

}  // namespace

at::Tensor dequantize(const at::Tensor& given, double scale, int64_t zero_point) {
  const at::Tensor x = dense(given), y = work_tensor(x.sizes(), x.strides(), c10::kFloat);
  for_type(x.scalar_type(), [&]<typename T>(const QuantizeKernels::Of<T>& kernels) {
    const T* const from = x.const_data_ptr<T>();
    float* const to = y.data_ptr<float>();
    parallel_for(x.numel(), 1, [&](int64_t begin, int64_t end) {
      kernels.dequantize(from + begin, to + begin, end - begin, dequantization(scale, zero_point));
    });
  });
  return y;
}

at::Tensor quantize(const at::Tensor& given, double scale, int64_t zero_point, int64_t low, int64_t high,
                    at::ScalarType type) {
  const at::Tensor x = dense(given.to(c10::kFloat)), y = work_tensor(x.sizes(), x.strides(), type);
  for_type(type, [&]<typename T>(const QuantizeKernels::Of<T>& kernels) {
    const float* const from = x.const_data_ptr<float>();
    T* const to = y.data_ptr<T>();
    parallel_for(x.numel(), 1, [&](int64_t begin, int64_t end) {
      kernels.quantize(from + begin, to + begin, end - begin, quantization(scale, zero_point, low, high));
    });
  });
  return y;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> dynamic_quantize(const at::Tensor& given) {
  TORCH_CHECK(given.numel() > 0, "an empty tensor has no range to quantize");
  const at::Tensor x = dense(given.to(c10::kFloat));
  const float* const from = x.const_data_ptr<float>();
  const auto& kernels = for_this_cpu<QuantizeKernels>();
  const Range range = parallel_reduce(
      x.numel(), 1, Range(), [&](int64_t begin, int64_t end) { return kernels.range(from + begin, end - begin); },
      united);
  const float scale = range.low == range.high ? 1 : (range.high - range.low) / 255;
  const float zero_point = std::nearbyint(std::clamp(-range.low / scale, 0.F, 255.F));
  const bool is_number = zero_point == zero_point;
  const int64_t whole = is_number ? static_cast<int64_t>(zero_point) : 0;
  const at::Tensor y =
      is_number ? quantize(x, scale, whole, 0, 255, c10::kByte) : at::zeros_like(x, x.options().dtype(c10::kByte));
  return {y, at::scalar_tensor(scale, c10::kFloat), at::scalar_tensor(whole, c10::kByte)};
}

at::Tensor look_up(const at::Tensor& given, const at::Tensor& table) {
  const at::Tensor x = dense(given), y = work_tensor(x.sizes(), x.strides(), table.scalar_type());
  for_type(x.scalar_type(), [&]<typename T>(const QuantizeKernels::Of<T>&) {
    const T* const from = x.const_data_ptr<T>();
    const auto* const results = static_cast<const uint8_t*>(table.const_data_ptr());
    auto* const to = static_cast<uint8_t*>(y.data_ptr());
    parallel_for(x.numel(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = results[from[i] - std::numeric_limits<T>::min()];
    });
  });
  return y;
}

at::Tensor quantized_add(const at::Tensor& a, double a_scale, int64_t a_zero_point, const at::Tensor& b, double b_scale,
                         int64_t b_zero_point, double start, double scale, int64_t zero_point, int64_t low,
                         int64_t high, at::ScalarType type) {
  const Operand first{dense(a), a_scale, a_zero_point}, second{b, b_scale, b_zero_point};
  const auto kernels = [](const auto& of) { return std::pair(of.add, of.add_floats); };
  const Joining by{.start = static_cast<float>(start)};
  const auto result = joined(first, second, by, type, quantization(scale, zero_point, low, high), kernels);
  if (result) return *result;
  return quantize(at::add(at::add(first.values(), start), second.values()), scale, zero_point, low, high, type);
}

at::Tensor quantized_mul(const at::Tensor& a, double a_scale, int64_t a_zero_point, const at::Tensor& b, double b_scale,
                         int64_t b_zero_point, double unit, double start, double scale, int64_t zero_point, int64_t low,
                         int64_t high, at::ScalarType type) {
  const Operand first{dense(a), a_scale, a_zero_point}, second{b, b_scale, b_zero_point};
  const auto kernels = [](const auto& of) { return std::pair(of.multiply, of.multiply_floats); };
  const Joining by{.unit = static_cast<float>(unit), .start = static_cast<float>(start)};
  const auto result = joined(first, second, by, type, quantization(scale, zero_point, low, high), kernels);
  if (result) return *result;
  const at::Tensor product = at::mul(at::mul(first.values(), second.values()), unit);
  return quantize(at::add(product, start), scale, zero_point, low, high, type);
}

at::Tensor dequantize_along(const at::Tensor& x, const at::Tensor& scale, int64_t axis) {
  std::vector<int64_t> shape(x.dim(), 1);
  if (scale.numel() != 1) shape[axis] = scale.numel();
  return at::mul(x.to(c10::kFloat), scale.reshape(shape));
}

}  // namespace onnxtorch::onednn
