#include "kernels/simd/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "kernels/simd/inline.h"

namespace onnxtorch {
namespace {

constexpr int64_t kReduced = 32;  // so many sums go on side by side

// Brings numbers together, in any order.
template <typename F, typename Join>
ONNX_TORCH_INLINE float reduced(int64_t size, float start, const F& element, const Join& join) {
  if (size < kReduced) {
    float all = start;
    for (int64_t i = 0; i < size; ++i) all = join(all, element(i));
    return all;
  }
  float lanes[kReduced];
  for (float& lane : lanes) lane = start;
  int64_t i = 0;
  for (; i + kReduced <= size; i += kReduced) {
    for (int64_t j = 0; j < kReduced; ++j) lanes[j] = join(lanes[j], element(i + j));
  }
  for (int64_t j = 0; i + j < size; ++j) lanes[j] = join(lanes[j], element(i + j));
  for (int64_t width = kReduced / 2; width > 0; width /= 2) {
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

// Vectors as long as this CPU's, and half as long; what is longer GCC keeps in memory.
#if defined(CPU_CAPABILITY_AVX512)
constexpr int64_t kLanes = 16;
#elif defined(CPU_CAPABILITY_AVX2)
constexpr int64_t kLanes = 8;
#else
constexpr int64_t kLanes = 4;
#endif
// A template's argument would lose the alignment.
struct WholeVector {
  using Type = float __attribute__((vector_size(kLanes * sizeof(float)), aligned(alignof(float)), may_alias));
};
struct HalfVector {
  using Type = float __attribute__((vector_size(kLanes / 2 * sizeof(float)), aligned(alignof(float)), may_alias));
};
using Lanes = WholeVector::Type;
constexpr int64_t kVectors = kColumns / kLanes;

ONNX_TORCH_INLINE const Lanes* lanes(const float* x) { return reinterpret_cast<const Lanes*>(x); }

void product_rows(const float* x, float* y, int64_t rows, int64_t in, int64_t out, const float* blocks, bool relu) {
  constexpr int64_t kSums = kVectors < 4 ? 4 : 2;  // that go on side by side for each column
  for (const float* const end = x + rows * in; x < end; x += in, y += out) {
    const float* row = blocks;
    for (int64_t first = 0; first < out; first += kColumns) {
      Lanes sums[kSums][kVectors] = {};
      for (int64_t v = 0; v < kVectors; ++v) sums[0][v] = lanes(row)[v];
      row += kColumns;
      int64_t i = 0;
      for (; i + kSums <= in; i += kSums) {
#pragma GCC unroll 4
        for (int64_t s = 0; s < kSums; ++s, row += kColumns)
          for (int64_t v = 0; v < kVectors; ++v) sums[s][v] += x[i + s] * lanes(row)[v];
      }
      for (; i < in; ++i, row += kColumns)
        for (int64_t v = 0; v < kVectors; ++v) sums[0][v] += x[i] * lanes(row)[v];
      float results[kColumns];
      for (int64_t v = 0; v < kVectors; ++v) {
        Lanes sum = sums[0][v] + sums[1][v];
        if constexpr (kSums == 4) sum += sums[2][v] + sums[3][v];
        if (relu) sum = sum < 0 ? Lanes{} : sum;
        std::memcpy(results + v * kLanes, &sum, sizeof(sum));
      }
      std::memcpy(y + first, results, std::min(kColumns, out - first) * sizeof(float));
    }
  }
}

// Several parts of the panel at once: memory gives more to a thread that reads in several places, and a sum waits for
// the one before.
template <int64_t kWidth, int64_t kParts>
ONNX_TORCH_INLINE void product_with_parts(const float* x, float* y, int64_t in, const float* panel, const float* bias,
                                          int64_t columns) {
  using Vector = std::conditional_t<kWidth % kLanes == 0, WholeVector, HalfVector>::Type;
  constexpr int64_t kCount = kWidth * sizeof(float) / sizeof(Vector);
  const int64_t size = in / kParts;
  Vector sums[kParts][kCount] = {};
  const auto add = [&](int64_t part, int64_t row) __attribute__((always_inline)) {
    const auto* const columns_of = reinterpret_cast<const Vector*>(panel + row * kWidth);
    for (int64_t v = 0; v < kCount; ++v) sums[part][v] += x[row] * columns_of[v];
  };
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t part = 0; part < kParts; ++part) add(part, part * size + i);
  }
  for (int64_t row = kParts * size; row < in; ++row) add(0, row);
  for (int64_t part = 1; part < kParts; ++part) {
    for (int64_t v = 0; v < kCount; ++v) sums[0][v] += sums[part][v];
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

ONNX_TORCH_INLINE float product_of_rows(const float* a, const float* b, int64_t size) {
  Lanes sums[kVectors] = {};
  int64_t i = 0;
  for (; i + kColumns <= size; i += kColumns)
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
