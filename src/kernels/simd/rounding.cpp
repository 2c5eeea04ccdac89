#include "kernels/simd/rounding.h"

#include <bit>
#include <limits>

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

void to_float16(const float* x, float* y, int64_t count) {
  constexpr float kLeastNormal = 0x1p-14F, kLargest = 65504, kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kSameSteps = 0.5F;  // from where on floats are as far apart as the least of float16
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(x[i]);
    const uint32_t sign = bits & 0x80000000, size = bits ^ sign;
    const auto magnitude = std::bit_cast<float>(size);
    const auto normal = std::bit_cast<float>((size + 0xfff + (size >> 13 & 1)) & 0xffffe000);
    const float small = (magnitude + kSameSteps) - kSameSteps;
    const float finite = magnitude < kLeastNormal ? small : normal;
    const float rounded = finite > kLargest ? kInfinity : finite;
    y[i] = x[i] == x[i] ? std::bit_cast<float>(std::bit_cast<uint32_t>(rounded) | sign) : x[i];
  }
}

constexpr RoundingKernels kKernels{.to_bfloat16 = to_bfloat16, .to_float16 = to_float16};

}  // namespace

const RoundingKernels RoundingKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
