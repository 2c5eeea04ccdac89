// The parts of the softmax of a row of floats, for softmax and attention.
#pragma once

#include <ATen/cpu/vec/functional.h>

#include <cstdint>
#include <limits>

#include "kernels/simd/vector_math.h"

namespace onnxtorch::CPU_CAPABILITY {

constexpr float kLeast = -std::numeric_limits<float>::infinity();

ONNX_TORCH_INLINE float largest_of(const Vec& x) {
  return at::vec::vec_reduce_all<float>([](const Vec& a, const Vec& b) { return at::vec::maximum(a, b); }, x);
}

ONNX_TORCH_INLINE float sum_of(const Vec& x) {
  return at::vec::vec_reduce_all<float>([](const Vec& a, const Vec& b) { return a + b; }, x);
}

ONNX_TORCH_INLINE float largest_of(const float* x, int64_t count) {
  Vec largest(kLeast);
  in_vectors<float>(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
    largest = at::vec::maximum(largest, load_first(x + i, n, kLeast));
  });
  return largest_of(largest);
}

// Computes y = exp(x - the largest of x). Gives the sum of y; it is NaN where y is as a whole.
ONNX_TORCH_INLINE float powers_of_row(const float* x, float largest, float* y, int64_t count) {
  Vec sum(0);
  in_vectors<float>(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
    const Vec power = falling_exp(load_first(x + i, n, kLeast) - Vec(largest));
    power.store(y + i, static_cast<int>(n));
    sum = sum + power;
  });
  return sum_of(sum);
}

ONNX_TORCH_INLINE void scale_row(float* x, float factor, int64_t count) {
  in_vectors<float>(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
    (load_first(x + i, n, 0) * Vec(factor)).store(x + i, static_cast<int>(n));
  });
}

}  // namespace onnxtorch::CPU_CAPABILITY
