// LayerNorm and RMSNorm of rows of floats. One NaN or infinite element spreads to all of its row.
#pragma once

#include <cstdint>

namespace onnxtorch {

// The weight and the bias of a normalized row, one for each element; each is null where there is none.
struct RowAffine {
  const float *weight, *bias;
};

struct LayerNormKernels {
  // Normalize rows; `y` may be `x`.
  void (*layer_norm_rows)(const float* x, float* y, int64_t rows, int64_t size, RowAffine affine, double eps);
  void (*rms_norm_rows)(const float* x, float* y, int64_t rows, int64_t size, RowAffine affine, double eps);

  static const LayerNormKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
