// Rotary position embedding of one row: x * cos, plus x turned by a quarter * sin.
#pragma once

#include <cstdint>

namespace onnxtorch {

// Rows are of 2 * `half` elements; `y` may be `x`.
struct RotaryKernels {
  // Each element of the first half makes a pair with that of the second.
  void (*turn_halves)(const float* x, const float* cos, const float* sin, float* y, int64_t half);
  // Neighbours make a pair.
  void (*turn_pairs)(const float* x, const float* cos, const float* sin, float* y, int64_t half);

  static const RotaryKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
