// Softmax, and attention of many rows.
#pragma once

#include <cstdint>

#include "kernels/simd/rows.h"

namespace onnxtorch {

// Rows of a query side by side, and where their results go.
struct AttendingRows {
  const float* query;
  float* result;
  const float* mask;  // that of the first row, or null
  int64_t count, query_stride, result_stride, mask_stride;
  int64_t keys_of_first;  // where causal, each row sees one key more than the row before
};

// A matrix in parts of so many columns. Of the last, the vectors are whole that hold its columns.
struct Panels {
  const float* data;
  int64_t row_stride, stride;  // from row to row, and from panel to panel
};

struct AttentionKernels {
  // softmax(x) of rows of so many floats; `y` may be `x`.
  void (*softmax_rows)(const float* x, float* y, int64_t rows, int64_t size);
  // softmax(scores + mask), in place, of one row of scores, with the first `count` keys.
  void (*softmax_of_scores)(float* scores, const float* mask, int64_t count, const Attended& to);

  // What is attended to by many rows comes in panels.
  int64_t lanes;  // of a vector
  int64_t panel;  // columns
  int64_t rows;   // that come at most at once
  void (*pack_keys)(const Attended& to, float* panels);
  void (*pack_values)(const Attended& to, float* panels);
  // `work` is memory for `rows` rows of the query, and of as many elements as there are keys and columns of a value,
  // in whole panels.
  void (*attend)(const AttendingRows& rows, const Attended& to, const Panels& keys, const Panels& values, float* work);

  static const AttentionKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
