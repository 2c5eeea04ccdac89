#include "kernels/simd/small_product.h"

#include <algorithm>

#include "kernels/simd/tiles.h"
#include "kernels/simd/vectors.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;

// Lays out one panel of b, [depth][kColumnsOfPanel].
ONNX_TORCH_INLINE void lay_out(const SmallProduct& of, const float* b, int64_t columns, float* panel) {
  if (columns < kColumnsOfPanel) std::memset(panel, 0, of.depth * kColumnsOfPanel * sizeof(float));
  if (of.b_column != 1) {
    at::vec::transpose_mxn<float>(b, of.b_column, panel, kColumnsOfPanel, static_cast<int>(columns),
                                  static_cast<int>(of.depth));
  } else if (columns == kColumnsOfPanel) {
    for (int64_t k = 0; k < of.depth; ++k)
      std::memcpy(panel + k * kColumnsOfPanel, b + k * of.b_row, kColumnsOfPanel * sizeof(float));
  } else {
    for (int64_t k = 0; k < of.depth; ++k) std::copy_n(b + k * of.b_row, columns, panel + k * kColumnsOfPanel);
  }
}

void multiply(SmallProduct of, const float* a, const float* b, float* result, float* room) {
  const int64_t apart = of.depth * kColumnsOfPanel;
  for (int64_t column = 0; column < of.columns; column += kColumnsOfPanel) {
    lay_out(of, b + column * of.b_column, std::min(kColumnsOfPanel, of.columns - column),
            room + column / kColumnsOfPanel * apart);
  }
  multiply_panels(of.rows, {a, of.a_row, of.depth, apart, nullptr, result, of.columns, of.columns, false}, room);
}

constexpr SmallProductKernels kKernels{.multiply = multiply};

}  // namespace

const SmallProductKernels SmallProductKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
