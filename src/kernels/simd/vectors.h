// Functions of vectors of floats, as long as this CPU's are.
#pragma once

#include <ATen/cpu/vec/vec.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/simd/inline.h"

namespace onnxtorch::CPU_CAPABILITY {

using Vec = at::vec::Vectorized<float>;

// Calls function(i, n) for each vector of n elements from the i-th on.
template <typename T, typename F>
ONNX_TORCH_INLINE void in_vectors(int64_t count, const F& function) {
  constexpr int64_t kAtOnce = at::vec::Vectorized<T>::size();
  int64_t i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce) function(i, kAtOnce);
  if (i < count) function(i, count - i);
}

// The first n elements at x, and after them another number.
ONNX_TORCH_INLINE Vec load_first(const float* x, int64_t n, float after) {
  if (n == Vec::size()) return Vec::loadu(x);
#if defined(CPU_CAPABILITY_AVX512)
  return _mm512_mask_loadu_ps(Vec(after), static_cast<__mmask16>((1U << n) - 1), x);
#elif defined(CPU_CAPABILITY_AVX2)
  const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), numbers);
  return _mm256_blendv_ps(Vec(after), _mm256_maskload_ps(x, mask), _mm256_castsi256_ps(mask));
#else
  return Vec::set(Vec(after), Vec::loadu(x, n), n);
#endif
}

// The value of a polynomial at x, by its factors from that of the highest power.
template <size_t n>
ONNX_TORCH_INLINE Vec polynomial(const Vec& x, const std::array<float, n>& factors) {
  Vec sum(factors[0]);
  for (size_t i = 1; i < n; ++i) sum = at::vec::fmadd(sum, x, Vec(factors[i]));
  return sum;
}

#if defined(CPU_CAPABILITY_AVX512)
ONNX_TORCH_INLINE Vec times_power_of_two(const Vec& x, const Vec& n) { return _mm512_scalef_ps(x, n); }
#elif defined(CPU_CAPABILITY_AVX2)
// By two factors, as 2^n itself is denormal, or too small, where the product is.
ONNX_TORCH_INLINE Vec times_power_of_two(const Vec& x, const Vec& n) {
  const auto power = [](__m256i of) {
    return Vec(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(of, _mm256_set1_epi32(127)), 23)));
  };
  const __m256i all = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(all, 1);
  return x * power(half) * power(_mm256_sub_epi32(all, half));
}
#endif

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
// e to the power of -|x|, to about one unit in the last place; 0 where it is less than half the smallest number.
ONNX_TORCH_INLINE Vec falling_exp(const Vec& x) {
  constexpr float kLog2E = 1.44269502F, kLog2ELow = 1.92596303e-8F;
  constexpr std::array kPowerOfTwo = {
      1.5353362e-4F, 1.33988739e-3F, 9.61843692e-3F, 5.55033237e-2F, 2.40226477e-1F, 6.93147182e-1F, 1.0F};
  const Vec a = at::vec::clamp_min(x | Vec(-0.0F), Vec(-104));  // a NaN stays one
  const Vec n = (a * Vec(kLog2E)).round();
  const Vec r = at::vec::fmadd(a, Vec(kLog2ELow), at::vec::fmsub(a, Vec(kLog2E), n));
  return times_power_of_two(polynomial(r, kPowerOfTwo), n);
}
#else
ONNX_TORCH_INLINE Vec falling_exp(const Vec& x) { return x.abs().neg().exp(); }
#endif

}  // namespace onnxtorch::CPU_CAPABILITY
