#include "kernels/simd/layer_norm.h"

#include <cmath>

#include "kernels/simd/inline.h"
#include "kernels/simd/sums.h"

namespace onnxtorch {
namespace {

ONNX_TORCH_INLINE void scale_row(const float* x, float* y, int64_t size, float mean, float scale,
                                 const RowAffine& affine) {
  for (int64_t i = 0; i < size; ++i) {
    y[i] = (x[i] - mean) * scale * (affine.weight ? affine.weight[i] : 1) + (affine.bias ? affine.bias[i] : 0);
  }
}

void layer_norm_rows(const float* x, float* y, int64_t rows, int64_t size, RowAffine affine, double eps) {
  const auto count = static_cast<float>(size);
  for (const float* const end = x + rows * size; x < end; x += size, y += size) {
    const float mean = sum_of(size, [&](int64_t i) { return x[i]; }) / count;
    const float spread = sum_of(size, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); }) / count;
    scale_row(x, y, size, mean, 1 / std::sqrt(spread + static_cast<float>(eps)), affine);
  }
}

void rms_norm_rows(const float* x, float* y, int64_t rows, int64_t size, RowAffine affine, double eps) {
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
