// Numbers of 2, 4 or 8 bits whose blocks have a scale each.
#pragma once

#include <cstdint>

namespace onnxtorch {

// A row of numbers, the first in the lowest bits of its byte; those of 8 bits may have a sign. The size of a block is a
// multiple of four.
template <typename T>
struct BlocksOfBits {
  const T* numbers;
  const float* scales;
  const T* zero_points;  // packed as the numbers are; null where all blocks have the same
  float zero_point;
  int64_t bits, count, block_size;
};

struct BlockKernels {
  // Compute (number - zero_point) * scale.
  void (*dequantize_uint8)(const BlocksOfBits<uint8_t>& of, float* y);
  void (*dequantize_int8)(const BlocksOfBits<int8_t>& of, float* y);

  static const BlockKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
