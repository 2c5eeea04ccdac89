// Windows along a dimension, as pooling and convolutions have them.
#pragma once

#include <cstdint>

#include "kernels/simd/inline.h"

namespace onnxtorch {

// The windows along one dimension.
struct Windows {
  int64_t size, kernel, stride, padding, dilation, count;

  // Gives where a window begins, which may be in the padding.
  ONNX_TORCH_INLINE int64_t begin(int64_t window) const { return window * stride - padding; }
  // Give the range of a window that lies within the dimension: each `dilation`-th element from `first` on, before
  // `end`.
  ONNX_TORCH_INLINE int64_t first(int64_t window) const {
    const int64_t at = begin(window);
    return at >= 0 ? at : at + (-at + dilation - 1) / dilation * dilation;
  }
  ONNX_TORCH_INLINE int64_t end(int64_t window) const {
    const int64_t end = span(window) - padding;
    return end < size ? end : size;
  }
  // Gives the distance from the first window's begin, which may be in the padding, to the end of this one.
  ONNX_TORCH_INLINE int64_t span(int64_t window) const { return window * stride + (kernel - 1) * dilation + 1; }
};

// The windows along a dimension that is missing: one of one element.
constexpr Windows kNoWindows{.size = 1, .kernel = 1, .stride = 1, .padding = 0, .dilation = 1, .count = 1};

}  // namespace onnxtorch
