#include "kernels/simd/half_product.h"

#include <algorithm>

#include "kernels/simd/tiles.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;

ONNX_TORCH_INLINE void widen(const uint16_t* x, float* y, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) *reinterpret_cast<Floats*>(y + i) = load(x + i);
}

void multiply(const float* x, int64_t rows, int64_t in, const uint16_t* group, const float* bias, float* y,
              int64_t y_apart, int64_t columns, float* room) {
  const int64_t apart = in * kColumnsOfPanel;
  const Tile whole{x, in, in, apart, bias, y, y_apart, columns, false};
  if (rows == 1) {
    return for_panels<kPanelsOfRow>(whole, group, [](const Tile& t, const uint16_t* of) __attribute__((always_inline)) {
      multiply_tile<1, kPanelsOfRow>(t, of);
    });
  }
  if (rows <= kRows) {
    return for_panels<kPanelsOfRows>(whole, group,
                                     [=](const Tile& t, const uint16_t* of) __attribute__((always_inline)) {
                                       multiply_rows<kRows, kPanelsOfRows>(rows, t, of);
                                     });
  }
  for (int64_t first = 0; first < in; first += kDepth) {
    const int64_t depth = std::min(kDepth, in - first), size = depth * kColumnsOfPanel;
    for (int64_t p = 0; p < kPanelsOfGroup; ++p)
      widen(group + p * apart + first * kColumnsOfPanel, room + p * size, size);
    multiply_widened(rows, {x + first, in, depth, size, bias, y, y_apart, columns, first > 0}, room);
  }
}

constexpr HalfProductKernels kKernels{.rows_at_once = kRows, .room = kDepth * kColumnsOfGroup, .multiply = multiply};

}  // namespace

const HalfProductKernels HalfProductKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
