// Windows that are reduced to an element each.
#pragma once

#include <cstdint>

#include "kernels/simd/inline.h"
#include "kernels/simd/windows.h"

namespace onnxtorch {

// Windows over images that lie in the order of (image, depth, row, column, channel): channels-last, or with one channel
// where each plane is an image.
struct Pool {
  // The numbers of elements that each window counts, as factors along each dimension.
  struct Counts {
    const float *depth, *rows, *columns;
  };

  Windows depth, rows, columns;
  int64_t channels;
  Counts counts;  // for means alone

  ONNX_TORCH_INLINE int64_t width() const { return columns.size * channels; }
  ONNX_TORCH_INLINE int64_t image() const { return depth.size * rows.size * width(); }
  ONNX_TORCH_INLINE int64_t result_width() const { return columns.count * channels; }
  ONNX_TORCH_INLINE int64_t result_rows() const { return depth.count * rows.count; }
  // Gives the number of elements of a row with its padding, and of those that vectors read after them.
  ONNX_TORCH_INLINE int64_t line() const {
    constexpr int64_t kVectors = 128;
    const int64_t row = columns.padding + columns.size, windows = columns.span(columns.count - 1);
    return (row < windows ? windows : row) * channels + kVectors;
  }
};

// Computes rows of results, of all images, from begin to end. `line` is memory for p.line() elements.
template <typename T>
using PoolRows = void(const T* x, Pool p, int64_t begin, int64_t end, T* line, T* y);

struct PoolKernels {
  PoolRows<float>* largest_of_floats;
  PoolRows<uint8_t>* largest_of_bytes;
  PoolRows<int8_t>* largest_of_chars;
  PoolRows<float>* means;

  static const PoolKernels DEFAULT, AVX2, AVX512;  // one for each of ATen's CPU capabilities
};

}  // namespace onnxtorch
