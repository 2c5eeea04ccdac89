// Rounding of floats to types of fewer bits, with results that stay floats.
#pragma once

#include <cstdint>

namespace onnxtorch {

struct RoundingKernels {
  // Round to the nearest number of the type, and of two that are as near to the even one. A NaN stays as it is. `y` may
  // be `x`.
  void (*to_bfloat16)(const float* x, float* y, int64_t count);
  void (*to_float16)(const float* x, float* y, int64_t count);

  static const RoundingKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
