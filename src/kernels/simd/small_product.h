// Products of small matrices of floats, of which neither comes often enough to be laid out before.
#pragma once

#include <cstdint>

namespace onnxtorch {

struct SmallProduct {
  int64_t rows, depth, columns;
  int64_t a_row;            // from one row to the next; its columns are contiguous
  int64_t b_row, b_column;  // one of which is 1
};

constexpr int64_t kMostSmallDepth = 128, kMostSmallColumns = 128;
constexpr int64_t kSmallProductRoom = kMostSmallDepth * kMostSmallColumns;

struct SmallProductKernels {
  // Computes result = a @ b, contiguous, with room for kSmallProductRoom floats.
  void (*multiply)(SmallProduct of, const float* a, const float* b, float* result, float* room);

  static const SmallProductKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
