#include "kernels/simd/quantized/quantize.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/simd/inline.h"
#include "kernels/simd/vectors.h"

namespace onnxtorch {
namespace {

template <typename T>
ONNX_TORCH_INLINE T quantized(float x, const QuantizeStep& to) {
  float ratio = x / to.scale;
  ratio = ratio < to.low ? to.low : ratio;
  ratio = ratio > to.high ? to.high : ratio;
  const float rounded = std::nearbyint(ratio), of_nan = -static_cast<float>(to.zero_point);
  const auto steps = static_cast<int32_t>(ratio == ratio ? rounded : of_nan);
  return static_cast<T>(steps + to.zero_point);
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

// A table of two halves of 128 bytes, in which as many bytes as a vector has are looked up at once.
#if defined(CPU_CAPABILITY_AVX512)
class Table {
 public:
  using Bytes = __m512i;
  ONNX_TORCH_INLINE Table(const uint8_t* first, const uint8_t* second)
      : parts_{_mm512_loadu_si512(first), _mm512_loadu_si512(first + 64), _mm512_loadu_si512(second),
               _mm512_loadu_si512(second + 64)} {}
  ONNX_TORCH_INLINE Bytes operator[](Bytes positions) const {
    const Bytes low = _mm512_set1_epi16(0xFF), high = _mm512_srli_epi16(positions, 8);
    return _mm512_or_si512(bytes_at(_mm512_and_si512(positions, low)), _mm512_slli_epi16(bytes_at(high), 8));
  }

 private:
  // Looks up positions of 16 bits: a word of the table has two bytes, and two parts have 64 words.
  ONNX_TORCH_INLINE Bytes bytes_at(Bytes positions) const {
    const Bytes word = _mm512_srli_epi16(positions, 1);
    const Bytes first = _mm512_permutex2var_epi16(parts_[0], word, parts_[1]);
    const Bytes second = _mm512_permutex2var_epi16(parts_[2], word, parts_[3]);
    const __mmask32 in_second = _mm512_test_epi16_mask(positions, _mm512_set1_epi16(0x80));
    const Bytes pair = _mm512_mask_blend_epi16(in_second, first, second);
    const __mmask32 is_odd = _mm512_test_epi16_mask(positions, _mm512_set1_epi16(1));
    return _mm512_and_si512(_mm512_mask_srli_epi16(pair, is_odd, pair, 8), _mm512_set1_epi16(0xFF));
  }

  Bytes parts_[4];
};
#elif defined(CPU_CAPABILITY_AVX2)
class Table {
 public:
  using Bytes = __m256i;
  ONNX_TORCH_INLINE Table(const uint8_t* first, const uint8_t* second) {
    for (int64_t i = 0; i < kRows; ++i) {
      const uint8_t* const row = i < kRows / 2 ? first + 16 * i : second + 16 * (i - kRows / 2);
      rows_[i] = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row)));
    }
  }
  // Looks up positions: the last four bits of one choose a byte of each row, and the others, one after another, among
  // the rows.
  ONNX_TORCH_INLINE Bytes operator[](Bytes positions) const {
    const Bytes column = _mm256_and_si256(positions, _mm256_set1_epi8(0x0F));
    Bytes chosen[kRows];
    for (int64_t i = 0; i < kRows; ++i) chosen[i] = _mm256_shuffle_epi8(rows_[i], column);
#pragma GCC unroll 4
    for (int bit = 4; bit < 8; ++bit) {
      const Bytes as_sign = _mm256_slli_epi16(positions, 7 - bit);
      for (int64_t i = 0; i < kRows >> (bit - 3); ++i)
        chosen[i] = _mm256_blendv_epi8(chosen[2 * i], chosen[2 * i + 1], as_sign);
    }
    return chosen[0];
  }

 private:
  static constexpr int64_t kRows = 16;
  Bytes rows_[kRows];
};
#endif

template <typename T>
void look_up(const T* x, const uint8_t* table, uint8_t* y, int64_t count) {
  const uint8_t* const of_zero = table - std::numeric_limits<T>::min();
  int64_t i = 0;
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
  constexpr int64_t kAtOnce = sizeof(Table::Bytes);
  if (count >= kAtOnce) {
    const Table bytes(of_zero, std::is_signed_v<T> ? table : table + 128);
    for (; i + kAtOnce <= count; i += kAtOnce) {
      Table::Bytes positions;
      std::memcpy(&positions, x + i, sizeof(positions));
      const Table::Bytes found = bytes[positions];
      std::memcpy(y + i, &found, sizeof(found));
    }
  }
#endif
  for (; i < count; ++i) y[i] = of_zero[x[i]];
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
                                            .multiply_floats = multiply<T, float>,
                                            .look_up = look_up<T>};

constexpr QuantizeKernels kKernels{.of_uint8 = kKernelsOf<uint8_t>, .of_int8 = kKernelsOf<int8_t>, .range = range};

}  // namespace

const QuantizeKernels QuantizeKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
