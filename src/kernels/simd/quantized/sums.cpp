#include "kernels/simd/quantized/sums.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "kernels/simd/inline.h"
#include "kernels/simd/integers.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;

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

template <typename T>
ONNX_TORCH_INLINE int32_t sum(const T* x, int64_t count) {
  constexpr int64_t kNumbers = sizeof(Integers);
  int64_t i = 0;
  Integers sums = zeros();
  const Integers ones = fill(0x01010101);
  for (; i + kNumbers <= count; i += kNumbers) {
    const Integers numbers = load(x + i);
    sums = plus_sums(sums, std::is_signed_v<T> ? products(ones, numbers) : products(numbers, ones));
  }
  int32_t parts[kNumbers / sizeof(int32_t)], total = 0;
  store(parts, sums);
  for (const int32_t part : parts) total += part;
  for (; i < count; ++i) total += x[i];
  return total;
}

template <typename T>
void add_rows(const T* x, int32_t* sums, int64_t rows, int64_t length) {
  for (int64_t row = 0; row < rows; ++row) sums[row] = sum(x + row * length, length);
}

template <typename T>
void add_columns(const T* x, int32_t* sums, int64_t rows, int64_t columns, int64_t stride) {
  constexpr int64_t kRows = 128;  // the sum of so many rows fits 16 bits
  std::fill_n(sums, columns, 0);
  for (int64_t first = 0; first < rows; first += kRows) {
    int16_t parts[SumKernels::kMostColumns] = {};
    const int64_t end = std::min(first + kRows, rows);
    for (int64_t row = first; row < end; ++row) {
      for (int64_t i = 0; i < columns; ++i) parts[i] = static_cast<int16_t>(parts[i] + x[row * stride + i]);
    }
    for (int64_t i = 0; i < columns; ++i) sums[i] += parts[i];
  }
}

void subtract(const uint8_t* x, uint8_t offset, uint8_t* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = x[i] - offset;
}

void subtract_each(const uint8_t* x, const uint8_t* offsets, uint8_t* to, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) to[i] = x[i] - offsets[i];
}

// Corrects a sum. Sums wrap, as those of int32 do in the primitives.
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
constexpr SumKernels::Of<T> kKernelsOf{
    .take_all = take_all<T>, .take_each = take_each<T>, .add_rows = add_rows<T>, .add_columns = add_columns<T>};

constexpr SumKernels kKernels{.of_uint8 = kKernelsOf<uint8_t>,
                              .of_int8 = kKernelsOf<int8_t>,
                              .subtract = subtract,
                              .subtract_each = subtract_each,
                              .correct_row = correct_row,
                              .scale_row = scale_row};

}  // namespace

const SumKernels SumKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
