// The indices of the largest elements of columns of floats.
#pragma once

#include <cstdint>

namespace onnxtorch {

struct ArgmaxKernels {
  static constexpr int64_t kMostColumns = 256;

  // Gives, for each of the first `size` columns of rows that are `stride` apart, at most kMostColumns, the index of the
  // row with the first of the largest elements, or of those that are NaN; and that element.
  void (*largest_of_columns)(const float* x, int32_t* numbers, float* elements, int64_t rows, int64_t size,
                             int64_t stride);

  static const ArgmaxKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
