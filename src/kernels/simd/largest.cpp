#include "kernels/simd/largest.h"

#include <bit>

#include "kernels/simd/inline.h"

namespace onnxtorch {
namespace {

template <typename T, typename Bits>
ONNX_TORCH_INLINE int32_t largest(const T* x, int64_t count, const Bits& bits) {
  int32_t result = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t size = bits(x[i]) & 0x7fffffff;
    result = size > result ? size : result;
  }
  return result;
}

int32_t of_floats(const float* x, int64_t count) {
  return largest(x, count, [](float value) { return std::bit_cast<int32_t>(value); });
}

int32_t of_bfloat16(const uint16_t* x, int64_t count) {
  return largest(x, count, [](uint16_t value) { return static_cast<int32_t>(uint32_t{value} << 16); });
}

constexpr LargestKernels kKernels{.of_floats = of_floats, .of_bfloat16 = of_bfloat16};

}  // namespace

const LargestKernels LargestKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
