#include "kernels/simd/argmax.h"

#include <algorithm>

namespace onnxtorch {
namespace {

void largest_of_columns(const float* x, int32_t* numbers, float* elements, int64_t rows, int64_t size, int64_t stride) {
  std::fill_n(numbers, size, 0);
  std::copy_n(x, size, elements);
  for (int64_t row = 1; row < rows; ++row) {
    x += stride;
#pragma GCC ivdep
    for (int64_t i = 0; i < size; ++i) {
      const float element = x[i], best = elements[i];
      const bool is_larger = (element > best) | ((element != element) & (best == best));
      elements[i] = is_larger ? element : best;
      numbers[i] = is_larger ? static_cast<int32_t>(row) : numbers[i];
    }
  }
}

constexpr ArgmaxKernels kKernels{.largest_of_columns = largest_of_columns};

}  // namespace

const ArgmaxKernels ArgmaxKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
