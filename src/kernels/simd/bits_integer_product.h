// Products of rows that are rounded to int8, each block of numbers with a scale of its own, and a weight of numbers of
// 2, 4 or 8 bits, in integers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/simd/bits_product.h"

namespace onnxtorch {

// The head of each block of a rounded row, before its numbers, of which there are as many as in a block of the weight.
// The numbers lie as words of the weight are read: byte j of the word that is shifted by `bits` i times meets byte j of
// the i-th word here. There are zeros after the last number.
struct RoundedBlock {
  float scale;
  int32_t sum;  // of the numbers
};

// A group of numbers that are as they come.
using UnsignedBitsGroup = BitsGroup<uint8_t>;

struct BitsIntegerKernels {
  int64_t rows_at_once;  // so many rows share what is read of the weight

  // Rounds a row to multiples of a scale for each block, which is its largest magnitude divided by 127. Where an
  // element is not finite, the scale is NaN.
  void (*round)(const float* x, UnsignedBitsGroup weight, std::byte* to);
  int64_t (*bytes_of_row)(UnsignedBitsGroup weight);

  // Computes y = x @ weight + bias, of one group, of which `columns` are asked for. Rows of y lie so far apart; the
  // bias may be null.
  void (*multiply)(const std::byte* x, int64_t rows, UnsignedBitsGroup group, const float* bias, float* y,
                   int64_t y_apart, int64_t columns);

  static const BitsIntegerKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
  static const BitsIntegerKernels AVX512_VNNI;            // for CPUs that have AVX-512 and VNNI
};

}  // namespace onnxtorch
