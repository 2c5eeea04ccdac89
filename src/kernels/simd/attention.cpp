#include "kernels/simd/attention.h"

#include <ATen/cpu/vec/functional.h>

#include <cstring>

#include "kernels/simd/lanes.h"
#include "kernels/simd/softmax_row.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;

// Weights of scores, in place, that are the softmax's once multiplied by the factor that this gives.
ONNX_TORCH_INLINE float weigh(float* scores, const float* mask, int64_t count, const Attended& to) {
  if (mask) {
    for (int64_t i = 0; i < count; ++i) scores[i] += mask[i * to.mask_stride];
  }
  const float largest = largest_of(scores, count), sum = powers_of_row(scores, largest, scores, count);
  const bool is_hidden = largest == kLeast;
  const bool is_zero = to.nan == NanRows::Zero || (to.nan == NanRows::ZeroWhereHidden && is_hidden);
  if (!is_zero || sum == sum) return 1 / sum;
  for (int64_t i = 0; i < count; ++i) scores[i] = 0;
  return 1;
}

void softmax_of_scores(float* scores, const float* mask, int64_t count, const Attended& to) {
  scale_row(scores, weigh(scores, mask, count, to), count);
}

// --- One row by itself ---

template <typename Vector>
ONNX_TORCH_INLINE float sum_of_lanes(Vector x) {
  if constexpr (sizeof(x) == 16 * sizeof(float)) {
    return sum_of_lanes(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                        __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
  } else if constexpr (sizeof(x) == 8 * sizeof(float)) {
    return sum_of_lanes(__builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7));
  } else {
    return (x[0] + x[1]) + (x[2] + x[3]);
  }
}

constexpr int64_t kStep = 16;  // elements that are added up side by side

ONNX_TORCH_INLINE float product_of_rows(const float* a, const float* b, int64_t size) {
  constexpr int64_t kVectors = kStep / kLanes;
  Lanes sums[kVectors] = {};
  int64_t i = 0;
  for (; i + kStep <= size; i += kStep)
    for (int64_t v = 0; v < kVectors; ++v) sums[v] += lanes(a + i)[v] * lanes(b + i)[v];
  for (int64_t v = 1; v < kVectors; ++v) sums[0] += sums[v];
  float rest = 0;
  for (; i < size; ++i) rest += a[i] * b[i];
  return sum_of_lanes(sums[0]) + rest;
}

// Of so many vectors of the rows' columns.
template <int64_t kCount>
ONNX_TORCH_INLINE void weighted_sum(const float* weights, const float* rows, int64_t count, int64_t stride,
                                    float* sum) {
  Lanes sums[kCount] = {};
  for (int64_t i = 0; i < count; ++i, rows += stride) {
    for (int64_t v = 0; v < kCount; ++v) sums[v] += weights[i] * lanes(rows)[v];
  }
  std::memcpy(sum, sums, sizeof(sums));
}

void scores_of_row(const float* query, float* scores, int64_t count, const Attended& to) {
  const float* key = to.keys;
  for (int64_t i = 0; i < count; ++i, key += to.key_stride)
    scores[i] = product_of_rows(query, key, to.key_size) * to.scale;
}

void values_of_row(const float* weights, float* result, int64_t count, const Attended& to) {
  int64_t column = 0;
  constexpr int64_t kMost = 4;
  for (; column + kMost * kLanes <= to.value_size; column += kMost * kLanes)
    weighted_sum<kMost>(weights, to.values + column, count, to.value_stride, result + column);
  for (; column + kLanes <= to.value_size; column += kLanes)
    weighted_sum<1>(weights, to.values + column, count, to.value_stride, result + column);
  for (; column < to.value_size; ++column) {
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += weights[i] * to.values[i * to.value_stride + column];
    result[column] = sum;
  }
}

// --- Many rows ---

// A tile is of so many rows and vectors that its sums, and a row of a panel, have a register each.
#if defined(CPU_CAPABILITY_AVX512)
constexpr int64_t kTileRows = 6, kTileVectors = 4;
#elif defined(CPU_CAPABILITY_AVX2)
constexpr int64_t kTileRows = 6, kTileVectors = 2;
#else
constexpr int64_t kTileRows = 4, kTileVectors = 1;
#endif
constexpr int64_t kPanel = kTileVectors * Vec::size();
constexpr int64_t kMostRows = 24;  // whole tiles
constexpr int64_t kDepth = 64;     // so many rows of a panel stay in the level 1 cache

ONNX_TORCH_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
ONNX_TORCH_INLINE int64_t panels_of(int64_t columns) { return (columns + kPanel - 1) / kPanel; }

// A product of rows and matrices in panels; the rows fill tiles.
struct Product {
  const float* x;
  Panels panels;
  float* y;
  int64_t rows, columns, depth;
  int64_t x_stride, y_stride;
};

// y = x @ panel, or where it goes on, y += x @ panel.
template <int64_t vectors, bool goes_on>
ONNX_TORCH_INLINE void multiply_tile(const float* x, const float* panel, float* y, int64_t depth, const Product& p) {
  Vec sums[kTileRows][vectors];
#pragma GCC unroll 8
  for (int64_t r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < vectors; ++v)
      sums[r][v] = goes_on ? Vec::loadu(y + r * p.y_stride + v * Vec::size()) : Vec(0);
  }
  for (int64_t i = 0; i < depth; ++i, panel += p.panels.row_stride) {
    Vec row[vectors];
#pragma GCC unroll 8
    for (int64_t v = 0; v < vectors; ++v) row[v] = Vec::loadu(panel + v * Vec::size());
#pragma GCC unroll 8
    for (int64_t r = 0; r < kTileRows; ++r) {
      const Vec factor(x[r * p.x_stride + i]);
#pragma GCC unroll 8
      for (int64_t v = 0; v < vectors; ++v) sums[r][v] = at::vec::fmadd(factor, row[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
    for (int64_t v = 0; v < vectors; ++v) sums[r][v].store(y + r * p.y_stride + v * Vec::size());
  }
}

// Of a panel's first vectors, down to its last column.
template <bool goes_on, int64_t vectors = kTileVectors>
void multiply_panel(const float* x, const float* panel, float* y, int64_t depth, int64_t columns, const Product& p) {
  if constexpr (vectors > 1) {
    if (columns <= (vectors - 1) * Vec::size())
      return multiply_panel<goes_on, vectors - 1>(x, panel, y, depth, columns, p);
  }
  for (int64_t row = 0; row < p.rows; row += kTileRows)
    multiply_tile<vectors, goes_on>(x + row * p.x_stride, panel, y + row * p.y_stride, depth, p);
}

void multiply(const Product& p) {
  for (int64_t i = 0; i < p.depth; i += kDepth) {
    const int64_t depth = smaller(kDepth, p.depth - i);
    const float* panel = p.panels.data + i * p.panels.row_stride;
    for (int64_t column = 0; column < p.columns; column += kPanel, panel += p.panels.stride) {
      const auto multiply_part = i == 0 ? multiply_panel<false, kTileVectors> : multiply_panel<true, kTileVectors>;
      multiply_part(p.x + i, panel, p.y + column, depth, p.columns - column, p);
    }
  }
}

void clear(float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] = 0;
}

void pack_keys(const Attended& to, float* panels) {
  for (int64_t key = 0; key < to.count; key += kPanel, panels += to.key_size * kPanel) {
    const int64_t number = smaller(kPanel, to.count - key);
    if (number < kPanel) clear(panels, to.key_size * kPanel);
    at::vec::transpose_mxn<float>(to.keys + key * to.key_stride, to.key_stride, panels, kPanel,
                                  static_cast<int>(number), static_cast<int>(to.key_size));
  }
}

void pack_values(const Attended& to, float* panels) {
  for (int64_t column = 0; column < to.value_size; column += kPanel) {
    const int64_t number = smaller(kPanel, to.value_size - column);
    const float* from = to.values + column;
    for (int64_t key = 0; key < to.count; ++key, from += to.value_stride, panels += kPanel) {
      for (int64_t i = 0; i < number; ++i) panels[i] = from[i];
      clear(panels + number, kPanel - number);
    }
  }
}

void attend(const AttendingRows& rows, const Attended& to, const Panels& keys, const Panels& values, float* work) {
  const int64_t filled = (rows.count + kTileRows - 1) / kTileRows * kTileRows;
  const int64_t scores_stride = panels_of(to.count) * kPanel, sums_stride = panels_of(to.value_size) * kPanel;
  float *const query = work, *const scores = query + kMostRows * to.key_size,
               *const sums = scores + kMostRows * scores_stride;
  for (int64_t r = 0; r < rows.count; ++r) {
    for (int64_t i = 0; i < to.key_size; ++i)
      query[r * to.key_size + i] = rows.query[r * rows.query_stride + i] * to.scale;
  }
  clear(query + rows.count * to.key_size, (filled - rows.count) * to.key_size);

  const int64_t seen = smaller(to.count, rows.keys_of_first + rows.count - 1);  // by the last row
  multiply({query, keys, scores, filled, seen, to.key_size, to.key_size, scores_stride});
  float factors[kMostRows];
  for (int64_t r = 0; r < rows.count; ++r) {
    float* const row = scores + r * scores_stride;
    const int64_t count = smaller(to.count, rows.keys_of_first + r);
    factors[r] = weigh(row, rows.mask ? rows.mask + r * rows.mask_stride : nullptr, count, to);
    clear(row + count, seen - count);
  }
  multiply({scores, values, sums, filled, to.value_size, seen, scores_stride, sums_stride});
  for (int64_t r = 0; r < rows.count; ++r) {
    for (int64_t i = 0; i < to.value_size; ++i)
      rows.result[r * rows.result_stride + i] = sums[r * sums_stride + i] * factors[r];
  }
}

constexpr AttentionKernels kKernels{.scores_of_row = scores_of_row,
                                    .values_of_row = values_of_row,
                                    .softmax_of_scores = softmax_of_scores,
                                    .lanes = Vec::size(),
                                    .panel = kPanel,
                                    .rows = kMostRows,
                                    .pack_keys = pack_keys,
                                    .pack_values = pack_values,
                                    .attend = attend};

}  // namespace

const AttentionKernels AttentionKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
