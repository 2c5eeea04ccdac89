// Products of rows of float32 and a weight of numbers of 2, 4 or 8 bits, which is dequantized as it is read.
#pragma once

#include <cstdint>

#include "kernels/simd/group.h"

namespace onnxtorch {

// A group of the weight. A column is words of 32 bits, the first number in the lowest bits. Blocks of so many numbers
// of a column have a scale, and may have a zero point.
template <typename ZeroPoint>
struct BitsGroup {
  int64_t bits, block_size;
  int64_t in, words, blocks;     // of a column
  const int32_t* numbers;        // [panel][word][column]
  const float* scales;           // [panel][block][column]
  const ZeroPoint* zero_points;  // as the scales; null where there are none
  const float* values;           // that codes of 4 bits stand for; null where numbers stand for themselves
};

// A group of codes, or of numbers with the highest bit flipped. Read as signed, such a number is already less the
// default zero point.
using SignedBitsGroup = BitsGroup<float>;

struct BitsProductKernels {
  int64_t rows_at_once;  // as in HalfProductKernels
  int64_t room;

  // Computes y = x @ weight + bias, as there.
  void (*multiply)(const float* x, int64_t rows, SignedBitsGroup group, const float* bias, float* y, int64_t y_apart,
                   int64_t columns, float* room);

  static const BitsProductKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
