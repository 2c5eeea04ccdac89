// Attention: softmax(query @ keys * scale + mask) @ values.
#pragma once

#include <cstdint>

namespace onnxtorch {

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
  // query @ keys * scale, of one row and the first `count` keys.
  void (*scores_of_row)(const float* query, float* scores, int64_t count, const Attended& to);
  // weights @ values, likewise.
  void (*values_of_row)(const float* weights, float* result, int64_t count, const Attended& to);
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
