// Products of rows of floats and a weight.
#pragma once

#include <cstdint>

#include "kernels/simd/group.h"

namespace onnxtorch {

// Tells whether a panel of the weight may have this width: one that oneDNN lays out.
constexpr bool is_panel(int64_t width) {
  return width == 8 || width == 16 || width == 24 || width == 32 || width == 48 || width == 64;
}

constexpr int64_t kWidestOfRows = 24;  // of the panels that are multiplied by many rows

// Contiguous rows and a panel of at most kWidestOfRows columns.
struct RowsAndPanel {
  const float* x;
  int64_t rows, in;
  const float* panel;
  int64_t width;
  const float* bias;    // may be null
  const float* addend;  // lies as y does, and may be y; may be null
  bool relu;
  float* y;
  int64_t y_apart, columns;
};

struct RowProductKernels {
  // Compute x @ weight + bias, and 0 for what is less where `relu`. The weight comes in panels of kColumnsOfPanel
  // columns, with zeros after the last; the bias may be null. Each row of one or two is summed up by itself.
  using ProductOfRows = void (*)(const float* x, float* y, int64_t rows, int64_t in, int64_t out, const float* panels,
                                 const float* bias, bool relu);
  ProductOfRows product_of_few_rows, product_of_rows;

  // Computes the same for one row and a panel of the weight: `width` of its columns, which are contiguous in each of
  // its `in` rows, and of which the first `columns` are asked for. The width `is_panel`; the bias may be null.
  void (*product_with_panel)(const float* x, float* y, int64_t in, const float* panel, int64_t width, const float* bias,
                             int64_t columns);

  // Computes the same for rows, adds the addend, and gives 0 for what is less where `relu`. Null where primitives are
  // taken instead.
  void (*product_of_rows_with_panel)(const RowsAndPanel& of);

  static const RowProductKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
