#include "kernels/simd/layer_norm.h"

#include <cmath>

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

constexpr LayerNormKernels kKernels{.layer_norm_rows = layer_norm_rows, .rms_norm_rows = rms_norm_rows};

}  // namespace

const LayerNormKernels LayerNormKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
