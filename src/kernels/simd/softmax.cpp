#include "kernels/simd/softmax.h"

#include <cmath>

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

float sum_of_powers(const float* x, float largest, int64_t count) {
  Vec sum(0);
  in_vectors<float>(count, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
    sum = sum + falling_exp(load_first(x + i, n, kLeast) - Vec(largest));
  });
  return sum_of(sum);
}

void log_softmax_rows(const float* x, float* y, int64_t rows, int64_t size) {
  for (const float* const end = x + rows * size; x < end; x += size, y += size) {
    const float largest = largest_of(x, size), logarithm = std::log(sum_of_powers(x, largest, size));
    in_vectors<float>(size, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
      (load_first(x + i, n, 0) - Vec(largest) - Vec(logarithm)).store(y + i, static_cast<int>(n));
    });
  }
}

constexpr SoftmaxKernels kKernels{.softmax_rows = softmax_rows, .log_softmax_rows = log_softmax_rows};

}  // namespace

const SoftmaxKernels SoftmaxKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
