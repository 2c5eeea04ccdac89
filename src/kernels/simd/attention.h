// Attention: softmax(query @ keys * scale + mask) @ values.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>

#include "kernels/simd/inline.h"

namespace onnxtorch {

constexpr int64_t kNoWindow = std::numeric_limits<int64_t>::max();

// The treatment of a row of weights that is NaN, as a softmax of nothing but -inf is.
enum class NanRows : uint8_t { Kept, Zero, ZeroWhereHidden };

// The keys and values that rows of a query attend to: `count` of them, whose rows are so far apart.
struct Attended {
  const float *keys = nullptr, *values = nullptr;
  int64_t count, key_size, value_size;
  int64_t key_stride = 0, value_stride = 0;
  int64_t mask_stride = 0;  // from key to key; the mask, a number for each, may be null
  float scale;
  NanRows nan;
  float softcap = 0;            // scores come between -softcap and softcap; 0: as they are
  const float* sink = nullptr;  // a score that takes a share of each row of weights, and has no value

  // Gives the same for the keys and values from one on.
  ONNX_TORCH_INLINE Attended from(int64_t first) const {
    Attended rest = *this;
    rest.keys += first * key_stride;
    rest.values += first * value_stride;
    rest.count -= first;
    return rest;
  }
};

// Rows of a query that are `query_stride` apart, and where their results go.
struct AttendingRows {
  const float* query;
  float* result;
  const float* mask;  // that of the first row, or null
  int64_t count, query_stride, result_stride, mask_stride;
  int64_t keys_of_first;       // where causal, each row sees one key more than the row before
  int64_t window = kNoWindow;  // of these it attends to the last ones

  // Gives the first of the keys that a row attends to, out of so many, and how many they are.
  ONNX_TORCH_INLINE std::pair<int64_t, int64_t> seen(int64_t row, int64_t keys) const {
    const int64_t end = keys < keys_of_first + row ? keys : keys_of_first + row;
    const int64_t first = end > window ? end - window : 0;
    return {first, end - first};
  }
};

// A matrix in panels of so many columns. In the last one, the vectors that hold its columns are whole.
struct Panels {
  const float* data;
  int64_t row_stride, stride;  // from row to row, and from panel to panel
};

struct AttentionKernels {
  // Computes query @ keys * scale, of some rows, and of the first `count` keys. Rows of scores are `scores_stride`
  // apart.
  void (*scores_of_rows)(AttendingRows rows, float* scores, int64_t scores_stride, int64_t count, Attended to);
  // Computes weights @ values, likewise.
  void (*values_of_rows)(AttendingRows rows, const float* weights, int64_t weights_stride, int64_t count, Attended to);
  // Computes softmax(scores + mask), in place, of one row of scores, with the first `count` keys.
  void (*softmax_of_scores)(float* scores, const float* mask, int64_t count, Attended to);

  // Keys and values that many rows attend to come in panels.
  int64_t lanes;  // the lanes of a vector
  int64_t panel;  // the columns of a panel
  int64_t rows;   // the most that come at once
  void (*pack_keys)(Attended to, float* panels);
  void (*pack_values)(Attended to, float* panels);
  // Attends. `work` is memory for `rows` rows of the query, and of as many elements as there are keys and columns of a
  // value, in whole panels.
  void (*attend)(AttendingRows rows, Attended to, Panels keys, Panels values, float* work);

  static const AttentionKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
