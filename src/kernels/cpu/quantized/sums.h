// The corrections and scalings of sums of products of int8 and uint8, which lie with the channels innermost, each in
// one pass over memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/simd/quantized/sums.h"

namespace onnxtorch {

// Computes the sums of the rows of a contiguous matrix of uint8, in int32.
at::Tensor sums_of_rows(const at::Tensor& matrix);
void add_rows(const uint8_t* x, int32_t* sums, int64_t rows, int64_t length);

// The lowest, the highest and the sum of the elements of each channel of a weight of int8 or uint8, in int32.
struct Channels {
  at::Tensor lowest, highest, totals;
};
Channels channels_of(const at::Tensor& weight, int64_t channel_dim);

// A correction: offsets[channel] + row_sums[row] * shifts[channel] is added to sums of int32, in place. The row sums
// may be undefined.
struct Correction {
  at::Tensor offsets, shifts, row_sums;
};
void correct(const at::Tensor& sums, const Correction& correction);

// The scaling that follows: each sum, corrected, is a float; times scales[channel], plus bias[channel], plus the
// operand's element; then, with `relu`, not below zero. The bias and the operand, which lies as the sums do, may be
// undefined. The result takes the memory of the sums.
struct Scaling {
  at::Tensor scales, bias, operand;
  bool relu = false;
};
at::Tensor scaled(const at::Tensor& sums, const Correction& correction, const Scaling& scaling);
// Does the same by memory, for so many rows; the row sums and the operand may be null.
void scale_rows(float* y, int64_t rows, int64_t channels, const SumSteps& of, const int32_t* row_sums,
                const float* operand);
// The bias where there is none: adding 0 would lose the sign of a zero.
constexpr float kNoBias = -0.0F;

}  // namespace onnxtorch
