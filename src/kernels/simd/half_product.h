// Products of rows of float32 and a weight that lies in float16, which is widened as it is read.
#pragma once

#include <cstdint>

#include "kernels/simd/group.h"

namespace onnxtorch {

// The kernels of such products. All elements of the weight are finite.
struct HalfProductKernels {
  // The most rows that are multiplied by the weight as it is read; for more it is widened into `room`.
  int64_t rows_at_once;
  int64_t room;  // in elements

  // Computes y = x @ weight + bias, of one group, of which `columns` are asked for. Rows of x are contiguous, those of
  // y lie so far apart; the bias may be null.
  void (*multiply)(const float* x, int64_t rows, int64_t in, const uint16_t* group, const float* bias, float* y,
                   int64_t y_apart, int64_t columns, float* room);

  static const HalfProductKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
