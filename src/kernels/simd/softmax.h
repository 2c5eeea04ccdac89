// Softmax and LogSoftmax of rows of floats.
#pragma once

#include <cstdint>

namespace onnxtorch {

struct SoftmaxKernels {
  // Compute rows of so many floats; `y` may be `x`.
  void (*softmax_rows)(const float* x, float* y, int64_t rows, int64_t size);
  void (*log_softmax_rows)(const float* x, float* y, int64_t rows, int64_t size);

  static const SoftmaxKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
