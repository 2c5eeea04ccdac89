// Sums and differences of int8 and uint8, and the steps that the sums of their products in int32 go through.
#pragma once

#include <cstdint>

namespace onnxtorch {

// The steps that a sum goes through: a channel's offset is added, and its shift times the row's sum. What follows is in
// floats: times the channel's scale, plus its bias, plus an operand's element; then not below `low`.
struct SumSteps {
  const int32_t *offsets, *shifts;
  const float *scales, *bias;
  float low;
};

struct SumKernels {
  // The kernels for one type. take_all and take_each update the lowest, the highest and the total of the elements
  // before: by all elements, or each by one of its own.
  template <typename T>
  struct Of {
    void (*take_all)(const T* x, int64_t count, int32_t* lowest, int32_t* highest, int32_t* total);
    void (*take_each)(const T* x, int64_t count, int32_t* lowest, int32_t* highest, int32_t* totals);
    // Compute the sums of rows, or of at most kMostColumns columns of rows that are `stride` apart. Those of more than
    // kMostNumbers elements may wrap.
    void (*add_rows)(const T* x, int32_t* sums, int64_t rows, int64_t length);
    void (*add_columns)(const T* x, int32_t* sums, int64_t rows, int64_t columns, int64_t stride);
  };
  static constexpr int64_t kMostColumns = 256, kMostNumbers = 1 << 23;

  Of<uint8_t> of_uint8;
  Of<int8_t> of_int8;
  // Compute x - offset, of bytes that wrap: with one offset, or one each.
  void (*subtract)(const uint8_t* x, uint8_t offset, uint8_t* to, int64_t count);
  void (*subtract_each)(const uint8_t* x, const uint8_t* offsets, uint8_t* to, int64_t count);
  // Correct, or correct and scale, a row of sums in place: sums that become floats lie where these are to be. The
  // operand may be null.
  void (*correct_row)(int32_t* sums, uint32_t row_sum, int64_t count, SumSteps of);
  void (*scale_row)(float* y, const float* operand, uint32_t row_sum, int64_t count, SumSteps of);

  static const SumKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
