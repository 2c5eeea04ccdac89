// Products with a weight of few bits, on device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace onnxtorch::cuda {

// Elements of 16 bits, as device code has them.
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

// A LinearOfBits. A row is words of 32 bits, the first number in the lowest bits.
struct BitsWeight {
  int64_t bits, in, out;
  int64_t words_of_row, blocks_of_row;
  int words_of_block_log2;
  const uint32_t* numbers;
  const float *scales, *zero_points, *values;  // the last two may be null
};

// Computes y[rows, out] = x[rows, in] @ weight.T + bias, which may be null. The weight is dequantized in registers.
// Sums are of float32.
template <typename T>
cudaError_t multiply_bits(int64_t rows, const BitsWeight& weight, const T* x, const T* bias, T* y, cudaStream_t stream);

// Writes the weight as floats: [out, in].
template <typename T>
cudaError_t dequantize_bits(const BitsWeight& weight, T* to, cudaStream_t stream);

}  // namespace onnxtorch::cuda
