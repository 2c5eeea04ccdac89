// What is done with numbers of 8 bits, and with the sums of their products in int32.
#pragma once

#include <cstdint>

namespace onnxtorch {

// What becomes of a sum: a channel's offset is added, and its shift times the row's sum. What follows of it is a float:
// times the channel's scale, plus its bias, plus an operand's element; then not below `low`.
struct SumSteps {
  const int32_t *offsets, *shifts;
  const float *scales, *bias;
  float low;
};

struct SumKernels {
  // The lowest and the highest of numbers and of those before, and the total: of all, or of each by itself.
  template <typename T>
  struct Of {
    void (*take_all)(const T* x, int64_t count, int32_t* lowest, int32_t* highest, int32_t* total);
    void (*take_each)(const T* x, int64_t count, int32_t* lowest, int32_t* highest, int32_t* totals);
    // The sums of rows, or of at most kMostColumns columns of rows that are `stride` apart. Those of more than
    // kMostNumbers numbers may wrap.
    void (*add_rows)(const T* x, int32_t* sums, int64_t rows, int64_t length);
    void (*add_columns)(const T* x, int32_t* sums, int64_t rows, int64_t columns, int64_t stride);
  };
  static constexpr int64_t kMostColumns = 256, kMostNumbers = 1 << 23;

  Of<uint8_t> of_uint8;
  Of<int8_t> of_int8;
  // x - offset, of bytes that wrap: with one offset, or one each.
  void (*subtract)(const uint8_t* x, uint8_t offset, uint8_t* to, int64_t count);
  void (*subtract_each)(const uint8_t* x, const uint8_t* offsets, uint8_t* to, int64_t count);
  // A row of sums, in place; those that become floats lie where these are to be. The operand may be null.
  void (*correct_row)(int32_t* sums, uint32_t row_sum, int64_t count, SumSteps of);
  void (*scale_row)(float* y, const float* operand, uint32_t row_sum, int64_t count, SumSteps of);

  static const SumKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
