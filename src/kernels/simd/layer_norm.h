// LayerNorm and RMSNorm of rows of floats. What is NaN or infinite is in all of a row.
#pragma once

#include <cstdint>

namespace onnxtorch {

// What is done to a normalized row, element by element; none where it is null.
struct RowAffine {
  const float *weight, *bias;
};

struct LayerNormKernels {
  // `y` may be `x`.
  void (*layer_norm_rows)(const float* x, float* y, int64_t rows, int64_t size, const RowAffine& affine, double eps);
  void (*rms_norm_rows)(const float* x, float* y, int64_t rows, int64_t size, const RowAffine& affine, double eps);

  static const LayerNormKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
