#include "kernels/cpu/quantized/sums.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "base/parallel.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/simd/quantized/sums.h"

namespace onnxtorch {
namespace {

// Finds the lowest, the highest and the sum of the elements of each row of a matrix, the rows or the columns of which
// are contiguous.
template <typename T>
void take(const at::Tensor& matrix, const SumKernels::Of<T>& kernels, const Channels& to) {
  const auto* const from = matrix.const_data_ptr<T>();
  auto *const low = to.lowest.data_ptr<int32_t>(), *const high = to.highest.data_ptr<int32_t>(),
              *const total = to.totals.data_ptr<int32_t>();
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  if (matrix.is_contiguous()) {
    for (int64_t i = 0; i < rows; ++i) kernels.take_all(from + i * columns, columns, low + i, high + i, total + i);
  } else {
    parallel_for(rows, columns, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < columns; ++i)
        kernels.take_each(from + i * rows + begin, end - begin, low + begin, high + begin, total + begin);
    });
  }
}

// Calls the function for each row: where it begins, and its sum.
template <typename Function>
void for_each_row(int64_t rows, int64_t length, const int32_t* row_sums, const Function& function) {
  parallel_for(rows, length, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      function(row * length, row_sums ? static_cast<uint32_t>(row_sums[row]) : 0);
  });
}

const int32_t* row_sums_of(const Correction& correction) {
  return correction.row_sums.defined() ? correction.row_sums.const_data_ptr<int32_t>() : nullptr;
}

}  // namespace

at::Tensor sums_of_rows(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(0), length = matrix.size(1);
  const at::Tensor result = at::empty({rows}, c10::kInt);
  add_rows(matrix.const_data_ptr<uint8_t>(), result.data_ptr<int32_t>(), rows, length);
  return result;
}

void add_rows(const uint8_t* x, int32_t* sums, int64_t rows, int64_t length) {
  parallel_for(rows, length, [&](int64_t begin, int64_t end) {
    for_this_cpu<SumKernels>().of_uint8.add_rows(x + begin * length, sums + begin, end - begin, length);
  });
}

Channels channels_of(const at::Tensor& weight, int64_t channel_dim) {
  at::Tensor matrix = weight.transpose(0, channel_dim).flatten(1);
  if (!matrix.t().is_contiguous()) matrix = matrix.contiguous();
  const int64_t channels = matrix.size(0);
  const Channels result{at::full({channels}, 255, c10::kInt), at::full({channels}, -128, c10::kInt),
                        at::zeros({channels}, c10::kInt)};
  const auto& kernels = for_this_cpu<SumKernels>();
  weight.scalar_type() == c10::kByte ? take(matrix, kernels.of_uint8, result) : take(matrix, kernels.of_int8, result);
  return result;
}

void correct(const at::Tensor& sums, const Correction& correction) {
  const SumSteps of{correction.offsets.const_data_ptr<int32_t>(), correction.shifts.const_data_ptr<int32_t>(), nullptr,
                    nullptr, 0};
  const auto& kernels = for_this_cpu<SumKernels>();
  auto* const y = sums.data_ptr<int32_t>();
  const int64_t length = correction.offsets.numel();
  for_each_row(sums.numel() / length, length, row_sums_of(correction),
               [&](int64_t at, uint32_t row_sum) { kernels.correct_row(y + at, row_sum, length, of); });
}

void scale_rows(float* y, int64_t rows, int64_t channels, const SumSteps& of, const int32_t* row_sums,
                const float* operand) {
  const auto& kernels = for_this_cpu<SumKernels>();
  for_each_row(rows, channels, row_sums, [&](int64_t at, uint32_t row_sum) {
    kernels.scale_row(y + at, operand ? operand + at : nullptr, row_sum, channels, of);
  });
}

at::Tensor scaled(const at::Tensor& sums, const Correction& correction, const Scaling& scaling) {
  const int64_t length = correction.offsets.numel();
  const at::Tensor bias = scaling.bias.defined() ? scaling.bias : at::full({length}, kNoBias, c10::kFloat);
  const SumSteps of{correction.offsets.const_data_ptr<int32_t>(), correction.shifts.const_data_ptr<int32_t>(),
                    scaling.scales.const_data_ptr<float>(), bias.const_data_ptr<float>(),
                    scaling.relu ? 0.0F : -std::numeric_limits<float>::infinity()};
  at::Tensor result = sums.view(c10::kFloat);
  scale_rows(result.data_ptr<float>(), sums.numel() / length, length, of, row_sums_of(correction),
             scaling.operand.defined() ? scaling.operand.const_data_ptr<float>() : nullptr);
  return result;
}

}  // namespace onnxtorch
