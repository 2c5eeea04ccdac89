#include "lower/simd/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "lower/simd/inline.h"

namespace onnxtorch {
namespace {

constexpr int64_t kLanes = 32;  // so many sums go on side by side

// Brings numbers together, in any order.
template <typename F, typename Join>
ONNX_TORCH_INLINE float reduced(int64_t size, float start, const F& element, const Join& join) {
  if (size < kLanes) {
    float all = start;
    for (int64_t i = 0; i < size; ++i) all = join(all, element(i));
    return all;
  }
  float lanes[kLanes];
  for (float& lane : lanes) lane = start;
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] = join(lanes[j], element(i + j));
  }
  for (int64_t j = 0; i + j < size; ++j) lanes[j] = join(lanes[j], element(i + j));
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t j = 0; j < width; ++j) lanes[j] = join(lanes[j], lanes[j + width]);
  }
  return lanes[0];
}

template <typename F>
ONNX_TORCH_INLINE float sum_of(int64_t size, const F& element) {
  return reduced(size, 0, element, [](float a, float b) { return a + b; });
}

ONNX_TORCH_INLINE void scale_row(const float* x, float* y, int64_t size, float mean, float scale,
                                 const RowAffine& affine) {
  for (int64_t i = 0; i < size; ++i) {
    y[i] = (x[i] - mean) * scale * (affine.weight ? affine.weight[i] : 1) + (affine.bias ? affine.bias[i] : 0);
  }
}

void layer_norm_rows(const float* x, float* y, int64_t rows, int64_t size, const RowAffine& affine, double eps) {
  const auto count = static_cast<float>(size);
  for (const float* const end = x + rows * size; x < end; x += size, y += size) {
    const float mean = sum_of(size, [&](int64_t i) { return x[i]; }) / count;
    const float spread = sum_of(size, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / count;
    scale_row(x, y, size, mean, 1 / std::sqrt(spread + static_cast<float>(eps)), affine);
  }
}

void rms_norm_rows(const float* x, float* y, int64_t rows, int64_t size, const RowAffine& affine, double eps) {
  const auto count = static_cast<float>(size);
  for (const float* const end = x + rows * size; x < end; x += size, y += size) {
    const float squares = sum_of(size, [&](int64_t i) { return x[i] * x[i]; }) / count;
    scale_row(x, y, size, 0, 1 / std::sqrt(squares + static_cast<float>(eps)), affine);
  }
}

void mean_of_rows(const float* x, float* y, int64_t rows, int64_t size, int64_t stride) {
  constexpr int64_t kRows = 64;  // summed up by themselves first, which is more exact
  float sums[kMostMeans] = {};
  for (int64_t first = 0; first < rows; first += kRows) {
    float part[kMostMeans] = {};
    const int64_t end = std::min(first + kRows, rows);
    for (int64_t row = first; row < end; ++row) {
      for (int64_t i = 0; i < size; ++i) part[i] += x[row * stride + i];
    }
    for (int64_t i = 0; i < size; ++i) sums[i] += part[i];
  }
  for (int64_t i = 0; i < size; ++i) y[i] = sums[i] / static_cast<float>(rows);
}

void largest_of_columns(const float* x, int32_t* numbers, float* elements, int64_t rows, int64_t size, int64_t stride) {
  std::fill_n(numbers, size, 0);
  std::copy_n(x, size, elements);
  for (int64_t row = 1; row < rows; ++row) {
    x += stride;
#pragma GCC ivdep
    for (int64_t i = 0; i < size; ++i) {
      const float element = x[i], best = elements[i];
      const bool is_larger = (element > best) | ((element != element) & (best == best));
      elements[i] = is_larger ? element : best;
      numbers[i] = is_larger ? static_cast<int32_t>(row) : numbers[i];
    }
  }
}

using Columns = float __attribute__((vector_size(kColumns * sizeof(float)), aligned(alignof(float)), may_alias));

// A template's argument would lose the alignment.
struct Whole {
  using Vector = Columns;
};
struct Half {
  using Vector = float __attribute__((vector_size(kColumns / 2 * sizeof(float)), aligned(alignof(float)), may_alias));
};

void product_rows(const float* x, float* y, int64_t rows, int64_t in, int64_t out, const float* blocks, bool relu) {
  constexpr int64_t kSums = 4;  // that go on side by side for each column
  for (const float* const end = x + rows * in; x < end; x += in, y += out) {
    const auto* row = reinterpret_cast<const Columns*>(blocks);
    for (int64_t first = 0; first < out; first += kColumns) {
      Columns sums[kSums] = {*row++};
      int64_t i = 0;
      for (; i + kSums <= in; i += kSums) {
        for (int64_t s = 0; s < kSums; ++s) sums[s] += x[i + s] * *row++;
      }
      for (; i < in; ++i) sums[0] += x[i] * *row++;
      Columns sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
      if (relu) sum = sum < 0 ? Columns{} : sum;
      std::memcpy(y + first, &sum, std::min(kColumns, out - first) * sizeof(float));
    }
  }
}

// Several parts of the panel at once: memory gives more to a thread that reads in several places, and a sum waits for
// the one before.
template <int64_t kWidth, int64_t kParts>
ONNX_TORCH_INLINE void product_with_parts(const float* x, float* y, int64_t in, const float* panel, const float* bias,
                                          int64_t columns) {
  using Vector = std::conditional_t<kWidth % kColumns == 0, Whole, Half>::Vector;
  constexpr int64_t kVectors = kWidth * sizeof(float) / sizeof(Vector);
  const int64_t size = in / kParts;
  Vector sums[kParts][kVectors] = {};
  const auto add = [&](int64_t part, int64_t row) __attribute__((always_inline)) {
    const auto* const columns_of = reinterpret_cast<const Vector*>(panel + row * kWidth);
    for (int64_t v = 0; v < kVectors; ++v) sums[part][v] += x[row] * columns_of[v];
  };
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t part = 0; part < kParts; ++part) add(part, part * size + i);
  }
  for (int64_t row = kParts * size; row < in; ++row) add(0, row);
  for (int64_t part = 1; part < kParts; ++part) {
    for (int64_t v = 0; v < kVectors; ++v) sums[0][v] += sums[part][v];
  }
  float result[kWidth];
  std::memcpy(result, sums[0], sizeof(result));
  for (int64_t i = 0; i < columns; ++i) y[i] = bias ? result[i] + bias[i] : result[i];
}

void product_with_panel(const float* x, float* y, int64_t in, const float* panel, int64_t width, const float* bias,
                        int64_t columns) {
  switch (width) {
    case 8:
      return product_with_parts<8, 8>(x, y, in, panel, bias, columns);
    case 16:
      return product_with_parts<16, 4>(x, y, in, panel, bias, columns);
    case 24:
      return product_with_parts<24, 4>(x, y, in, panel, bias, columns);
    case 32:
      return product_with_parts<32, 2>(x, y, in, panel, bias, columns);
    case 48:
      return product_with_parts<48, 2>(x, y, in, panel, bias, columns);
    default:
      return product_with_parts<64, 2>(x, y, in, panel, bias, columns);
  }
}

ONNX_TORCH_INLINE float sum_of_lanes(Columns x) {
  const auto eight = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  return (four[0] + four[1]) + (four[2] + four[3]);
}

ONNX_TORCH_INLINE float product_of_rows(const float* a, const float* b, int64_t size) {
  Columns sums = {};
  int64_t i = 0;
  for (; i + kColumns <= size; i += kColumns)
    sums += *reinterpret_cast<const Columns*>(a + i) * *reinterpret_cast<const Columns*>(b + i);
  float rest = 0;
  for (; i < size; ++i) rest += a[i] * b[i];
  return sum_of_lanes(sums) + rest;
}

// Of so many vectors of the rows' columns.
template <int64_t kVectors>
ONNX_TORCH_INLINE void weighted_sum(const float* weights, const float* rows, int64_t count, int64_t stride,
                                    float* sum) {
  Columns sums[kVectors] = {};
  for (int64_t i = 0; i < count; ++i, rows += stride) {
    const auto* row = reinterpret_cast<const Columns*>(rows);
    for (int64_t v = 0; v < kVectors; ++v) sums[v] += weights[i] * row[v];
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
  for (; column + 4 * kColumns <= to.value_size; column += 4 * kColumns)
    weighted_sum<4>(weights, to.values + column, count, to.value_stride, result + column);
  for (; column + kColumns <= to.value_size; column += kColumns)
    weighted_sum<1>(weights, to.values + column, count, to.value_stride, result + column);
  for (; column < to.value_size; ++column) {
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += weights[i] * to.values[i * to.value_stride + column];
    result[column] = sum;
  }
}

constexpr RowKernels kKernels{.layer_norm_rows = layer_norm_rows,
                              .rms_norm_rows = rms_norm_rows,
                              .mean_of_rows = mean_of_rows,
                              .largest_of_columns = largest_of_columns,
                              .product_rows = product_rows,
                              .product_with_panel = product_with_panel,
                              .scores_of_row = scores_of_row,
                              .values_of_row = values_of_row};

}  // namespace

const RowKernels RowKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
