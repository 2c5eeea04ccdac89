#include "lower/simd/rounding.h"

#include <bit>

namespace onnxtorch {
namespace {

void to_bfloat16(const float* x, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(x[i]);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    y[i] = x[i] == x[i] ? std::bit_cast<float>(rounded) : x[i];
  }
}

constexpr RoundingKernels kKernels{.to_bfloat16 = to_bfloat16};

}  // namespace

const RoundingKernels RoundingKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
