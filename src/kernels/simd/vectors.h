// Vectors of floats, as long as this CPU's are.
#pragma once

#include <ATen/cpu/vec/vec.h>

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

// Loads the first n elements at x, and after them another number.
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

}  // namespace onnxtorch::CPU_CAPABILITY
