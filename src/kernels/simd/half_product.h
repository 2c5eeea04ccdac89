// Products of rows of float32 and a weight that lies in float16, which is widened as it is read.
#pragma once

#include <cstdint>

namespace onnxtorch {

// The weight is [in, out], in groups of panels, each of which has some columns side by side in each of its `in` rows;
// there are zeros after the last column. All of its elements are finite.
constexpr int64_t kHalfColumns = 16;  // of a panel
constexpr int64_t kHalfPanels = 4;    // of a group
constexpr int64_t kHalfGroup = kHalfPanels * kHalfColumns;

struct HalfProductKernels {
  int64_t
      rows_at_once;  // so many or less are multiplied by the weight as it is read; for more it is widened into `room`
  int64_t room;      // in elements

  // y = x @ weight + bias, of one group, of which `columns` are asked for. Rows of x lie side by side, those of y so
  // far apart; the bias may be null.
  void (*multiply)(const float* x, int64_t rows, int64_t in, const uint16_t* group, const float* bias, float* y,
                   int64_t y_apart, int64_t columns, float* room);

  static const HalfProductKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
