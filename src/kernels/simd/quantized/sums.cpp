#include "kernels/simd/quantized/sums.h"

#include <bit>

#include "kernels/simd/inline.h"

namespace onnxtorch {
namespace {

template <typename T>
void take_all(const T* x, int64_t count, int32_t* lowest, int32_t* highest, int32_t* total) {
  int32_t low = *lowest, high = *highest, sum = *total;
  for (int64_t i = 0; i < count; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
    sum += x[i];
  }
  *lowest = low;
  *highest = high;
  *total = sum;
}

template <typename T>
void take_each(const T* x, int64_t count, int32_t* lowest, int32_t* highest, int32_t* totals) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    lowest[i] = x[i] < lowest[i] ? x[i] : lowest[i];
    highest[i] = x[i] > highest[i] ? x[i] : highest[i];
    totals[i] += x[i];
  }
}

void add_rows(const uint8_t* x, int32_t* sums, int64_t rows, int64_t length) {
  for (int64_t row = 0; row < rows; ++row, x += length) {
    int32_t sum = 0;
    for (int64_t i = 0; i < length; ++i) sum += x[i];
    sums[row] = sum;
  }
}

void subtract(const uint8_t* x, uint8_t offset, uint8_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = x[i] - offset;
}

void subtract_each(const uint8_t* x, const uint8_t* offsets, uint8_t* to, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) to[i] = x[i] - offsets[i];
}

// Sums wrap, as those of int32 do in the primitives.
ONNX_TORCH_INLINE int32_t corrected(int32_t sum, int64_t channel, uint32_t row_sum, const SumSteps& of) {
  return static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(of.offsets[channel]) +
                              row_sum * static_cast<uint32_t>(of.shifts[channel]));
}

void correct_row(int32_t* sums, uint32_t row_sum, int64_t count, SumSteps of) {
#pragma GCC ivdep
  for (int64_t c = 0; c < count; ++c) sums[c] = corrected(sums[c], c, row_sum, of);
}

template <bool kHasOperand>
ONNX_TORCH_INLINE void scale_all(float* y, const float* operand, uint32_t row_sum, int64_t count, SumSteps of) {
#pragma GCC ivdep
  for (int64_t c = 0; c < count; ++c) {
    float value = static_cast<float>(corrected(std::bit_cast<int32_t>(y[c]), c, row_sum, of)) * of.scales[c];
    value += of.bias[c];
    if constexpr (kHasOperand) value += operand[c];
    y[c] = value < of.low ? of.low : value;
  }
}

void scale_row(float* y, const float* operand, uint32_t row_sum, int64_t count, SumSteps of) {
  operand ? scale_all<true>(y, operand, row_sum, count, of) : scale_all<false>(y, nullptr, row_sum, count, of);
}

template <typename T>
constexpr SumKernels::Of<T> kKernelsOf{.take_all = take_all<T>, .take_each = take_each<T>};

constexpr SumKernels kKernels{.of_uint8 = kKernelsOf<uint8_t>,
                              .of_int8 = kKernelsOf<int8_t>,
                              .add_rows = add_rows,
                              .subtract = subtract,
                              .subtract_each = subtract_each,
                              .correct_row = correct_row,
                              .scale_row = scale_row};

}  // namespace

const SumKernels SumKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
