#include "kernels/simd/softmax.h"

#include "kernels/simd/softmax_row.h"

namespace onnxtorch {
namespace {

using namespace CPU_CAPABILITY;

ONNX_TORCH_INLINE void softmax_vector(const float* x, float* y, int64_t size) {
  const Vec row = load_first(x, size, kLeast), power = falling_exp(row - Vec(largest_of(row)));
  (power * Vec(1 / sum_of(power))).store(y, static_cast<int>(size));
}

void softmax_rows(const float* x, float* y, int64_t rows, int64_t size) {
  for (const float* const end = x + rows * size; x < end; x += size, y += size) {
    if (size <= Vec::size()) {
      softmax_vector(x, y, size);
    } else {
      scale_row(y, 1 / powers_of_row(x, largest_of(x, size), y, size), size);
    }
  }
}

constexpr SoftmaxKernels kKernels{.softmax_rows = softmax_rows};

}  // namespace

const SoftmaxKernels SoftmaxKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
