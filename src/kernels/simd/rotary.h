// Rotary position embedding of one row: x * cos, plus x turned by a quarter * sin.
#pragma once

#include <cstdint>

namespace onnxtorch {

// The kernels, for a row of 2 * `half` elements; `y` may be `x`.
struct RotaryKernels {
  // Turns pairs of an element of the first half and its counterpart in the second.
  void (*turn_halves)(const float* x, const float* cos, const float* sin, float* y, int64_t half);
  // Turns pairs of neighbours.
  void (*turn_pairs)(const float* x, const float* cos, const float* sin, float* y, int64_t half);

  static const RotaryKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
