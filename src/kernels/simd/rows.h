// Functions of whole rows of floats that lie side by side. What is NaN or infinite is in all of a row.
#pragma once

#include <cstdint>

namespace onnxtorch {

// What is done to a normalized row, element by element; none where it is null.
struct RowAffine {
  const float *weight, *bias;
};

// What is made of a row of weights that is NaN, as a softmax of nothing but -inf is.
enum class NanRows : uint8_t { Kept, Zero, ZeroWhereHidden };

// What rows of a query attend to: `count` keys and values, whose rows are so far apart.
struct Attended {
  const float *keys = nullptr, *values = nullptr;
  int64_t count, key_size, value_size;
  int64_t key_stride = 0, value_stride = 0;
  int64_t mask_stride = 0;  // from key to key; the mask, a number for each, may be null
  float scale;
  NanRows nan;
};

constexpr int64_t kMostMeans = 256;
constexpr int64_t kColumns = 16;

// Whether a panel of the weight may have this width: those that oneDNN lays out.
constexpr bool is_panel(int64_t width) {
  return width == 8 || width == 16 || width == 24 || width == 32 || width == 48 || width == 64;
}

struct RowKernels {
  // `y` may be `x`.
  void (*layer_norm_rows)(const float* x, float* y, int64_t rows, int64_t size, const RowAffine& affine, double eps);
  void (*rms_norm_rows)(const float* x, float* y, int64_t rows, int64_t size, const RowAffine& affine, double eps);

  // The mean of rows that are `stride` apart, of their first `size` elements, which are at most kMostMeans.
  void (*mean_of_rows)(const float* x, float* y, int64_t rows, int64_t size, int64_t stride);

  // For each of the first `size` columns of rows that are `stride` apart, at most kMostMeans, the number of the row
  // with the first of the largest elements, or of those that are NaN; and that element.
  void (*largest_of_columns)(const float* x, int32_t* numbers, float* elements, int64_t rows, int64_t size,
                             int64_t stride);

  // x @ weight + bias, and 0 for what is less where `relu`. The weight comes in blocks of kColumns columns, with zeros
  // after the last, each with its bias as the first row.
  void (*product_rows)(const float* x, float* y, int64_t rows, int64_t in, int64_t out, const float* blocks, bool relu);

  // The same of one row and a panel of the weight: `width` of its columns, which lie side by side in each of its `in`
  // rows, of which the first `columns` are asked for. The width `is_panel`; the bias may be null.
  void (*product_with_panel)(const float* x, float* y, int64_t in, const float* panel, int64_t width, const float* bias,
                             int64_t columns);

  // query @ keys * scale, of one row and the first `count` keys.
  void (*scores_of_row)(const float* query, float* scores, int64_t count, const Attended& to);
  // weights @ values, likewise.
  void (*values_of_row)(const float* weights, float* result, int64_t count, const Attended& to);

  static const RowKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
