#include "lower/onednn/sums.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "lower/for_each_cpu.h"

namespace onnxtorch::onednn {
namespace {

constexpr int64_t kGrain = 1 << 15;

// Rows so that a thread has enough to do.
int64_t grain(int64_t length) { return std::max<int64_t>(kGrain / std::max<int64_t>(length, 1), 1); }

ONNX_TORCH_FOR_EACH_CPU void add_rows(const uint8_t* x, int32_t* sums, int64_t rows, int64_t length) {
  for (int64_t row = 0; row < rows; ++row, x += length) {
    int32_t sum = 0;
    for (int64_t i = 0; i < length; ++i) sum += x[i];
    sums[row] = sum;
  }
}

template <typename T>
ONNX_TORCH_INLINE void take_all(const T* x, int64_t count, int32_t* lowest, int32_t* highest, int32_t* total) {
  int32_t low = *lowest, high = *highest, sum = *total;
  for (int64_t i = 0; i < count; ++i) {
    low = std::min<int32_t>(low, x[i]);
    high = std::max<int32_t>(high, x[i]);
    sum += x[i];
  }
  *lowest = low;
  *highest = high;
  *total = sum;
}

template <typename T>
ONNX_TORCH_INLINE void take_each(const T* x, int64_t count, int32_t* lowest, int32_t* highest, int32_t* totals) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    lowest[i] = std::min<int32_t>(lowest[i], x[i]);
    highest[i] = std::max<int32_t>(highest[i], x[i]);
    totals[i] += x[i];
  }
}

ONNX_TORCH_FOR_EACH_CPU void take_row(const uint8_t* x, int64_t count, int32_t* low, int32_t* high, int32_t* total) {
  take_all(x, count, low, high, total);
}
ONNX_TORCH_FOR_EACH_CPU void take_row(const int8_t* x, int64_t count, int32_t* low, int32_t* high, int32_t* total) {
  take_all(x, count, low, high, total);
}
ONNX_TORCH_FOR_EACH_CPU void take_column(const uint8_t* x, int64_t count, int32_t* low, int32_t* high, int32_t* total) {
  take_each(x, count, low, high, total);
}
ONNX_TORCH_FOR_EACH_CPU void take_column(const int8_t* x, int64_t count, int32_t* low, int32_t* high, int32_t* total) {
  take_each(x, count, low, high, total);
}

// Of the rows of a matrix, of which the rows or the columns lie side by side.
template <typename T>
void take(const at::Tensor& matrix, const Channels& to) {
  const auto* const from = matrix.const_data_ptr<T>();
  auto *const low = to.lowest.data_ptr<int32_t>(), *const high = to.highest.data_ptr<int32_t>(),
              *const total = to.totals.data_ptr<int32_t>();
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  if (matrix.is_contiguous()) {
    for (int64_t i = 0; i < rows; ++i) take_row(from + i * columns, columns, low + i, high + i, total + i);
  } else {
    at::parallel_for(0, rows, grain(columns), [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < columns; ++i)
        take_column(from + i * rows + begin, end - begin, low + begin, high + begin, total + begin);
    });
  }
}

// Sums wrap, as those of int32 do in the primitives.
struct Steps {
  const int32_t *offsets, *shifts;
  const float *scales, *bias;
  float low;

  ONNX_TORCH_INLINE int32_t corrected(int32_t sum, int64_t channel, uint32_t row_sum) const {
    return static_cast<int32_t>(static_cast<uint32_t>(sum) + static_cast<uint32_t>(offsets[channel]) +
                                row_sum * static_cast<uint32_t>(shifts[channel]));
  }
};

ONNX_TORCH_FOR_EACH_CPU void correct_row(int32_t* sums, uint32_t row_sum, int64_t count, Steps of) {
#pragma GCC ivdep
  for (int64_t c = 0; c < count; ++c) sums[c] = of.corrected(sums[c], c, row_sum);
}

// The sums lie where the results are to be.
template <bool kHasOperand>
ONNX_TORCH_INLINE void scale_all(float* y, const float* operand, uint32_t row_sum, int64_t count, Steps of) {
#pragma GCC ivdep
  for (int64_t c = 0; c < count; ++c) {
    float value = static_cast<float>(of.corrected(std::bit_cast<int32_t>(y[c]), c, row_sum)) * of.scales[c];
    value += of.bias[c];
    if constexpr (kHasOperand) value += operand[c];
    y[c] = value < of.low ? of.low : value;
  }
}

ONNX_TORCH_FOR_EACH_CPU void scale_row(float* y, uint32_t row_sum, int64_t count, Steps of) {
  scale_all<false>(y, nullptr, row_sum, count, of);
}
ONNX_TORCH_FOR_EACH_CPU void scale_row_and_add(float* y, const float* operand, uint32_t row_sum, int64_t count,
                                               Steps of) {
  scale_all<true>(y, operand, row_sum, count, of);
}

// Calls the function for each row: its number, where it begins and its sum.
template <typename Function>
void for_each_row(const at::Tensor& sums, const Correction& correction, const Function& function) {
  const int64_t length = correction.offsets.numel();
  const auto* const row_sums = correction.row_sums.defined() ? correction.row_sums.const_data_ptr<int32_t>() : nullptr;
  at::parallel_for(0, sums.numel() / length, grain(length), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      function(row * length, row_sums ? static_cast<uint32_t>(row_sums[row]) : 0);
  });
}

}  // namespace

at::Tensor sums_of_rows(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(0), length = matrix.size(1);
  const at::Tensor result = at::empty({rows}, c10::kInt);
  const auto* const from = matrix.const_data_ptr<uint8_t>();
  auto* const to = result.data_ptr<int32_t>();
  at::parallel_for(0, rows, grain(length), [&](int64_t begin, int64_t end) {
    add_rows(from + begin * length, to + begin, end - begin, length);
  });
  return result;
}

Channels channels_of(const at::Tensor& weight, int64_t channel_dim) {
  at::Tensor matrix = weight.transpose(0, channel_dim).flatten(1);
  if (!matrix.t().is_contiguous()) matrix = matrix.contiguous();
  const int64_t channels = matrix.size(0);
  const Channels result{at::full({channels}, 255, c10::kInt), at::full({channels}, -128, c10::kInt),
                        at::zeros({channels}, c10::kInt)};
  weight.scalar_type() == c10::kByte ? take<uint8_t>(matrix, result) : take<int8_t>(matrix, result);
  return result;
}

void correct(const at::Tensor& sums, const Correction& correction) {
  const Steps of{correction.offsets.const_data_ptr<int32_t>(), correction.shifts.const_data_ptr<int32_t>(), nullptr,
                 nullptr, 0};
  auto* const y = sums.data_ptr<int32_t>();
  const int64_t length = correction.offsets.numel();
  for_each_row(sums, correction, [&](int64_t at, uint32_t row_sum) { correct_row(y + at, row_sum, length, of); });
}

at::Tensor scaled(const at::Tensor& sums, const Correction& correction, const Scaling& scaling) {
  constexpr float kNeutral = -0.0F;  // adding 0 would lose the sign of a zero
  const int64_t length = correction.offsets.numel();
  const at::Tensor bias = scaling.bias.defined() ? scaling.bias : at::full({length}, kNeutral, c10::kFloat);
  const Steps of{correction.offsets.const_data_ptr<int32_t>(), correction.shifts.const_data_ptr<int32_t>(),
                 scaling.scales.const_data_ptr<float>(), bias.const_data_ptr<float>(),
                 scaling.relu ? 0.0F : -std::numeric_limits<float>::infinity()};
  at::Tensor result = sums.view(c10::kFloat);
  auto* const y = result.data_ptr<float>();
  const auto* const operand = scaling.operand.defined() ? scaling.operand.const_data_ptr<float>() : nullptr;
  for_each_row(sums, correction, [&](int64_t at, uint32_t row_sum) {
    if (operand) return scale_row_and_add(y + at, operand + at, row_sum, length, of);
    scale_row(y + at, row_sum, length, of);
  });
  return result;
}

}  // namespace onnxtorch::onednn
