#include "kernels/simd/quantized/quantize.h"

#include <cmath>
#include <limits>

#include "kernels/simd/inline.h"

namespace onnxtorch {
namespace {

template <typename T>
ONNX_TORCH_INLINE T quantized(float x, const QuantizeStep& to) {
  float ratio = x / to.scale;
  ratio = ratio < to.low ? to.low : ratio;
  ratio = ratio > to.high ? to.high : ratio;
  const auto number = static_cast<int32_t>(std::nearbyint(ratio)) + to.zero_point;
  return static_cast<T>(ratio == ratio ? number : 0);
}

template <typename T>
ONNX_TORCH_INLINE float dequantized(T x, const DequantizeStep& of) {
  return static_cast<float>(x - of.zero_point) * of.scale;
}
ONNX_TORCH_INLINE float dequantized(float x, const DequantizeStep&) { return x; }

template <typename T>
void quantize(const float* x, T* y, int64_t count, QuantizeStep to) {
  for (int64_t i = 0; i < count; ++i) y[i] = quantized<T>(x[i], to);
}

template <typename T>
void dequantize(const T* x, float* y, int64_t count, DequantizeStep of) {
  for (int64_t i = 0; i < count; ++i) y[i] = dequantized(x[i], of);
}

template <typename T, typename B>
void add(const T* a, DequantizeStep of_a, const B* b, DequantizeStep of_b, Joining by, T* y, int64_t count,
         QuantizeStep to) {
  for (int64_t i = 0; i < count; ++i)
    y[i] = quantized<T>(by.start + dequantized(a[i], of_a) + dequantized(b[i], of_b), to);
}

template <typename T, typename B>
void multiply(const T* a, DequantizeStep of_a, const B* b, DequantizeStep of_b, Joining by, T* y, int64_t count,
              QuantizeStep to) {
  for (int64_t i = 0; i < count; ++i)
    y[i] = quantized<T>(dequantized(a[i], of_a) * dequantized(b[i], of_b) * by.unit + by.start, to);
}

Range range(const float* x, int64_t count) {
  constexpr int64_t kLanes = 64;
  float low[kLanes] = {}, high[kLanes] = {};
  int32_t nan[kLanes] = {};
  const auto take = [&](int64_t lane, float value) __attribute__((always_inline)) {
    low[lane] = value < low[lane] ? value : low[lane];
    high[lane] = value > high[lane] ? value : high[lane];
    nan[lane] |= value != value;
  };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) take(lane, x[i + lane]);
  }
  for (; i < count; ++i) take(i % kLanes, x[i]);
  for (int64_t lane = 1; lane < kLanes; ++lane) {
    low[0] = low[lane] < low[0] ? low[lane] : low[0];
    high[0] = high[lane] > high[0] ? high[lane] : high[0];
    nan[0] |= nan[lane];
  }
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  return nan[0] ? Range{kNan, kNan} : Range{low[0], high[0]};
}

template <typename T>
constexpr QuantizeKernels::Of<T> kKernelsOf{.quantize = quantize<T>,
                                            .dequantize = dequantize<T>,
                                            .add = add<T, T>,
                                            .multiply = multiply<T, T>,
                                            .add_floats = add<T, float>,
                                            .multiply_floats = multiply<T, float>};

constexpr QuantizeKernels kKernels{.of_uint8 = kKernelsOf<uint8_t>, .of_int8 = kKernelsOf<int8_t>, .range = range};

}  // namespace

const QuantizeKernels QuantizeKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
