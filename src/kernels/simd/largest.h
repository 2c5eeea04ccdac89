// The largest absolute value, as the bits of a float, which are in the same order; those of a NaN are above all.
#pragma once

#include <cstdint>

namespace onnxtorch {

struct LargestKernels {
  int32_t (*of_floats)(const float* x, int64_t count);
  int32_t (*of_bfloat16)(const uint16_t* x, int64_t count);  // given as bits

  static const LargestKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
