#include "kernels/simd/attention.h"

#include <ATen/cpu/vec/functional.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/simd/lanes.h"
#include "kernels/simd/softmax_row.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;

void cap(float* scores, float softcap, int64_t count) {
  in_vectors<float>(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
    const Vec capped = tanh(load_first(scores + i, n, 0) * Vec(1 / softcap)) * Vec(softcap);
    capped.store(scores + i, static_cast<int>(n));
  });
}

// Makes weights of scores, in place, that are the softmax's once they are multiplied by the factor that this returns.
ONNX_TORCH_INLINE float weigh(float* scores, const float* mask, int64_t count, const Attended& to) {
  if (count == 0) return 1;
  if (to.softcap > 0) cap(scores, to.softcap, count);
  if (mask) {
    for (int64_t i = 0; i < count; ++i) scores[i] += mask[i * to.mask_stride];
  }
  float largest = largest_of(scores, count);
  if (to.sink) largest = largest < *to.sink ? *to.sink : largest;
  float sum = powers_of_row(scores, largest, scores, count);
  if (to.sink) sum += std::exp(*to.sink - largest);
  const bool is_hidden = largest == kLeast;
  const bool is_zero = to.nan == NanRows::Zero || (to.nan == NanRows::ZeroWhereHidden && is_hidden);
  if (!is_zero || sum == sum) return 1 / sum;
  for (int64_t i = 0; i < count; ++i) scores[i] = 0;
  return 1;
}

void softmax_of_scores(float* scores, const float* mask, int64_t count, Attended to) {
  scale_row(scores, weigh(scores, mask, count, to), count);
}

// --- A few rows, to keys and values that lie as they came ---

struct FourLanes {
  using Type = float __attribute__((vector_size(4 * sizeof(float)), aligned(alignof(float)), may_alias));
};
using Four = FourLanes::Type;

template <typename Vector>
ONNX_TORCH_INLINE Four folded(Vector x) {
  if constexpr (sizeof(x) == 16 * sizeof(float)) {
    return folded(__builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                  __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15));
  } else if constexpr (sizeof(x) == 8 * sizeof(float)) {
    return __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
  } else {
    return x;
  }
}

// Gives the sum of the lanes of each of so many vectors.
template <int64_t kCount>
ONNX_TORCH_INLINE void sums_of_lanes(const Lanes* x, float* sums) {
  if constexpr (kCount == 4) {
    const Four a = folded(x[0]), b = folded(x[1]), c = folded(x[2]), d = folded(x[3]);
    const Four of_two = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7),
               of_others = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *reinterpret_cast<Four*>(sums) =
        __builtin_shufflevector(of_two, of_others, 0, 1, 4, 5) + __builtin_shufflevector(of_two, of_others, 2, 3, 6, 7);
  } else {
    for (int64_t i = 0; i < kCount; ++i) {
      const Four of = folded(x[i]);
      sums[i] = (of[0] + of[1]) + (of[2] + of[3]);
    }
  }
}

// The numbers of rows and keys, or of rows and vectors of values, that are computed at once: their sums have a register
// each.
#if defined(CPU_CAPABILITY_AVX512)
constexpr int64_t kRowsAtOnce = 4, kVectorsAtOnce = 4;
#else
constexpr int64_t kRowsAtOnce = 2, kVectorsAtOnce = 4;
#endif
constexpr int64_t kKeysAtOnce = 4;
constexpr int64_t kKeysOfBlock = 64;  // the values of so many keys stay in the level 1 cache

template <int64_t kRows, int64_t kKeys>
ONNX_TORCH_INLINE void scores_of_tile(const float* query, int64_t query_stride, const float* keys, float* scores,
                                      int64_t scores_stride, const Attended& to) {
  Lanes sums[kRows][kKeys] = {};
  int64_t i = 0;
  for (; i + kLanes <= to.key_size; i += kLanes) {
    Lanes key[kKeys];
#pragma GCC unroll 8
    for (int64_t k = 0; k < kKeys; ++k) key[k] = *lanes(keys + k * to.key_stride + i);
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
      const Lanes row = *lanes(query + r * query_stride + i);
#pragma GCC unroll 8
      for (int64_t k = 0; k < kKeys; ++k) sums[r][k] += row * key[k];
    }
  }
  float totals[kRows][kKeys];
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; ++r) sums_of_lanes<kKeys>(sums[r], totals[r]);
  for (; i < to.key_size; ++i) {
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t k = 0; k < kKeys; ++k) totals[r][k] += query[r * query_stride + i] * keys[k * to.key_stride + i];
  }
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t k = 0; k < kKeys; ++k) scores[r * scores_stride + k] = totals[r][k] * to.scale;
}

// Calls function(first, count) for rows, as many at once as there may be; the count is a constant.
template <int64_t kAtOnce, typename F>
ONNX_TORCH_INLINE void in_tiles(int64_t first, int64_t rows, const F& function) {
  for (; first + kAtOnce <= rows; first += kAtOnce) function(first, std::integral_constant<int64_t, kAtOnce>());
  if constexpr (kAtOnce > 1) in_tiles<kAtOnce / 2>(first, rows, function);
}

void scores_of_rows(AttendingRows rows, float* scores, int64_t scores_stride, int64_t count, Attended to) {
  in_tiles<kKeysAtOnce>(0, count, [&](int64_t key, auto keys) __attribute__((always_inline)) {
    in_tiles<kRowsAtOnce>(0, rows.count, [&](int64_t row, auto at_once) __attribute__((always_inline)) {
      scores_of_tile<at_once(), keys()>(rows.query + row * rows.query_stride, rows.query_stride,
                                        to.keys + key * to.key_stride, scores + row * scores_stride + key,
                                        scores_stride, to);
    });
  });
}

// Adds to the results, or begins them.
template <int64_t kRows, int64_t kVectors>
ONNX_TORCH_INLINE void values_of_tile(const float* weights, int64_t weights_stride, const float* values, int64_t count,
                                      int64_t stride, bool goes_on, float* result, int64_t result_stride) {
  Lanes sums[kRows][kVectors] = {};
  if (goes_on) {
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int64_t v = 0; v < kVectors; ++v) sums[r][v] = lanes(result + r * result_stride)[v];
    }
  }
  for (int64_t i = 0; i < count; ++i, values += stride) {
    Lanes value[kVectors];
#pragma GCC unroll 8
    for (int64_t v = 0; v < kVectors; ++v) value[v] = lanes(values)[v];
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int64_t v = 0; v < kVectors; ++v) sums[r][v] += weights[r * weights_stride + i] * value[v];
    }
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; ++r) std::memcpy(result + r * result_stride, sums[r], sizeof(sums[r]));
}

void values_of_rows(AttendingRows rows, const float* weights, int64_t weights_stride, int64_t count, Attended to) {
  const int64_t vectors = to.value_size / kLanes;
  for (int64_t key = 0; key == 0 || key < count; key += kKeysOfBlock) {
    const int64_t number = std::min(kKeysOfBlock, count - key);
    const float* const values = to.values + key * to.value_stride;
    in_tiles<kRowsAtOnce>(0, rows.count, [&](int64_t row, auto at_once) __attribute__((always_inline)) {
      const float* const of_rows = weights + row * weights_stride + key;
      float* const result = rows.result + row * rows.result_stride;
      in_tiles<kVectorsAtOnce>(0, vectors, [&](int64_t vector, auto together) __attribute__((always_inline)) {
        values_of_tile<at_once(), together()>(of_rows, weights_stride, values + vector * kLanes, number,
                                              to.value_stride, key > 0, result + vector * kLanes, rows.result_stride);
      });
      for (int64_t r = 0; r < at_once(); ++r) {
        for (int64_t column = vectors * kLanes; column < to.value_size; ++column) {
          float sum = key > 0 ? result[r * rows.result_stride + column] : 0;
          for (int64_t i = 0; i < number; ++i)
            sum += of_rows[r * weights_stride + i] * values[i * to.value_stride + column];
          result[r * rows.result_stride + column] = sum;
        }
      }
    });
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
struct PanelsProduct {
  const float* x;
  Panels panels;
  float* y;
  int64_t rows, columns, depth;
  int64_t x_stride, y_stride;
};

// Computes y = x @ panel, or where it goes on, y += x @ panel.
template <int64_t vectors, bool goes_on>
ONNX_TORCH_INLINE void multiply_tile(const float* x, const float* panel, float* y, int64_t depth,
                                     const PanelsProduct& p) {
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

// Multiplies by a panel's first vectors, down to its last column.
template <bool goes_on, int64_t vectors = kTileVectors>
void multiply_panel(const float* x, const float* panel, float* y, int64_t depth, int64_t columns,
                    const PanelsProduct& p) {
  if constexpr (vectors > 1) {
    if (columns <= (vectors - 1) * Vec::size())
      return multiply_panel<goes_on, vectors - 1>(x, panel, y, depth, columns, p);
  }
  for (int64_t row = 0; row < p.rows; row += kTileRows)
    multiply_tile<vectors, goes_on>(x + row * p.x_stride, panel, y + row * p.y_stride, depth, p);
}

void multiply(const PanelsProduct& p) {
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

void pack_keys(Attended to, float* panels) {
  for (int64_t key = 0; key < to.count; key += kPanel, panels += to.key_size * kPanel) {
    const int64_t number = smaller(kPanel, to.count - key);
    if (number < kPanel) clear(panels, to.key_size * kPanel);
    at::vec::transpose_mxn<float>(to.keys + key * to.key_stride, to.key_stride, panels, kPanel,
                                  static_cast<int>(number), static_cast<int>(to.key_size));
  }
}

void pack_values(Attended to, float* panels) {
  for (int64_t column = 0; column < to.value_size; column += kPanel) {
    const int64_t number = smaller(kPanel, to.value_size - column);
    const float* from = to.values + column;
    for (int64_t key = 0; key < to.count; ++key, from += to.value_stride, panels += kPanel) {
      for (int64_t i = 0; i < number; ++i) panels[i] = from[i];
      clear(panels + number, kPanel - number);
    }
  }
}

void attend(AttendingRows rows, Attended to, Panels keys, Panels values, float* work) {
  const int64_t filled = (rows.count + kTileRows - 1) / kTileRows * kTileRows;
  const int64_t scores_stride = panels_of(to.count) * kPanel, sums_stride = panels_of(to.value_size) * kPanel;
  float *const query = work, *const scores = query + kMostRows * to.key_size,
               *const sums = scores + kMostRows * scores_stride;
  for (int64_t r = 0; r < rows.count; ++r) {
    for (int64_t i = 0; i < to.key_size; ++i)
      query[r * to.key_size + i] = rows.query[r * rows.query_stride + i] * to.scale;
  }
  clear(query + rows.count * to.key_size, (filled - rows.count) * to.key_size);

  // The rows are multiplied together: from the panel that the first one begins to see, up to what the last one sees.
  const int64_t panel = rows.seen(0, to.count).first / kPanel, begin = panel * kPanel;
  const auto [first_of_last, count_of_last] = rows.seen(rows.count - 1, to.count);
  const int64_t seen = first_of_last + count_of_last - begin;
  multiply({query,
            {keys.data + panel * keys.stride, keys.row_stride, keys.stride},
            scores,
            filled,
            seen,
            to.key_size,
            to.key_size,
            scores_stride});
  float factors[kMostRows];
  for (int64_t r = 0; r < rows.count; ++r) {
    float* const row = scores + r * scores_stride;
    const auto [first, count] = rows.seen(r, to.count);
    float* const own = row + first - begin;
    clear(row, first - begin);
    factors[r] = weigh(own, rows.mask ? rows.mask + r * rows.mask_stride + first * to.mask_stride : nullptr, count, to);
    clear(own + count, seen - (first - begin) - count);
  }
  if (seen == 0) clear(sums, filled * sums_stride);
  multiply({scores,
            {values.data + begin * values.row_stride, values.row_stride, values.stride},
            sums,
            filled,
            to.value_size,
            seen,
            scores_stride,
            sums_stride});
  for (int64_t r = 0; r < rows.count; ++r) {
    for (int64_t i = 0; i < to.value_size; ++i)
      rows.result[r * rows.result_stride + i] = sums[r * sums_stride + i] * factors[r];
  }
}

constexpr AttentionKernels kKernels{.scores_of_rows = scores_of_rows,
                                    .values_of_rows = values_of_rows,
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
