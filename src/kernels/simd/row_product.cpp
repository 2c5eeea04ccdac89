#include "kernels/simd/row_product.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/simd/tiles.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;

// Multiplies few rows, each by itself: a sum waits for the one before, so that several go on in parallel for each
// column.
void multiply_few(const Tile& of, int64_t rows, const float* panels) {
  constexpr int64_t kSums = kVectors < 4 ? 4 : 2;
  for (int64_t r = 0; r < rows; ++r) {
    const float *const x = of.x + r * of.x_apart, *row = panels;
    for (int64_t first = 0; first < of.columns; first += kColumnsOfPanel) {
      Floats sums[kSums][kVectors] = {};
      int64_t i = 0;
      for (; i + kSums <= of.depth; i += kSums) {
#pragma GCC unroll 4
        for (int64_t s = 0; s < kSums; ++s, row += kColumnsOfPanel)
          for (int64_t v = 0; v < kVectors; ++v) sums[s][v] += x[i + s] * load(row + v * kLanes);
      }
      for (; i < of.depth; ++i, row += kColumnsOfPanel)
        for (int64_t v = 0; v < kVectors; ++v) sums[0][v] += x[i] * load(row + v * kLanes);
      float results[kColumnsOfPanel];
      for (int64_t v = 0; v < kVectors; ++v) {
        Floats sum = sums[0][v] + sums[1][v];
        if constexpr (kSums == 4) sum += sums[2][v] + sums[3][v];
        std::memcpy(results + v * kLanes, &sum, sizeof(sum));
      }
      float* const y = of.y + r * of.y_apart + first;
      for (int64_t c = 0; c < std::min(kColumnsOfPanel, of.columns - first); ++c)
        y[c] = of.bias ? results[c] + of.bias[first + c] : results[c];
    }
  }
}

void take_relu(float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = y[i] < 0 ? 0 : y[i];
}

Tile tile_of(const float* x, float* y, int64_t in, int64_t out, const float* bias) {
  return {x, in, in, in * kColumnsOfPanel, bias, y, out, out, false};
}

void product_of_few_rows(const float* x, float* y, int64_t rows, int64_t in, int64_t out, const float* panels,
                         const float* bias, bool relu) {
  multiply_few(tile_of(x, y, in, out, bias), rows, panels);
  if (relu) take_relu(y, rows * out);
}

void product_of_rows(const float* x, float* y, int64_t rows, int64_t in, int64_t out, const float* panels,
                     const float* bias, bool relu) {
  multiply_panels(rows, tile_of(x, y, in, out, bias), panels);
  if (relu) take_relu(y, rows * out);
}

// Multiplies several parts of the panel at once: memory gives more to a thread that reads in several places, and a sum
// waits for the one before.
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

#if defined(CPU_CAPABILITY_AVX2)

// Multiplies so many rows at a time by a panel as there are registers for their sums.
template <int64_t kWidth>
void rows_with_panel(int64_t rows, Tile t, const float* panel) {
  constexpr int64_t kSums = 12, kAtOnce = std::min<int64_t>(kSums / (kWidth / kLanes), 8);
  for (; rows >= kAtOnce; rows -= kAtOnce, t.x += kAtOnce * t.x_apart, t.y += kAtOnce * t.y_apart)
    multiply_tile<kAtOnce, 1, kWidth>(t, panel);
  if (rows > 0) multiply_rows<kAtOnce - 1, 1, kWidth>(rows, t, panel);
}

void product_of_rows_with_panel(const RowsAndPanel& of) {
  const auto multiply = of.width == 8 ? rows_with_panel<8> : of.width == 16 ? rows_with_panel<16> : rows_with_panel<24>;
  for (int64_t r = 0; of.addend && r < of.rows; ++r) {
    float* const y = of.y + r * of.y_apart;
    const float* const addend = of.addend + r * of.y_apart;
    for (int64_t c = 0; c < of.columns; ++c) y[c] = of.bias ? addend[c] + of.bias[c] : addend[c];
  }
  const int64_t parts = (of.in + kDepth - 1) / kDepth, depth = (of.in + parts - 1) / parts;
  for (int64_t first = 0; first < of.in; first += depth) {
    const bool adds = of.addend || first > 0;
    multiply(of.rows,
             {of.x + first, of.in, std::min(depth, of.in - first), 0, of.bias, of.y, of.y_apart, of.columns, adds},
             of.panel + first * of.width);
  }
  for (int64_t r = 0; of.relu && r < of.rows; ++r) take_relu(of.y + r * of.y_apart, of.columns);
}

#else

constexpr decltype(RowProductKernels::product_of_rows_with_panel) product_of_rows_with_panel = nullptr;

#endif

constexpr RowProductKernels kKernels{.product_of_few_rows = product_of_few_rows,
                                     .product_of_rows = product_of_rows,
                                     .product_with_panel = product_with_panel,
                                     .product_of_rows_with_panel = product_of_rows_with_panel};

}  // namespace

const RowProductKernels RowProductKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
