#include "kernels/simd/rotary.h"

namespace onnxtorch {
namespace {

void turn_halves(const float* x, const float* cos, const float* sin, float* y, int64_t half) {
#pragma GCC ivdep
  for (int64_t i = 0; i < half; ++i) {
    const float first = x[i], second = x[half + i];
    y[i] = first * cos[i] - second * sin[i];
    y[half + i] = second * cos[half + i] + first * sin[half + i];
  }
}

void turn_pairs(const float* x, const float* cos, const float* sin, float* y, int64_t half) {
#pragma GCC ivdep
  for (int64_t i = 0; i < half; ++i) {
    const float first = x[2 * i], second = x[2 * i + 1];
    y[2 * i] = first * cos[2 * i] - second * sin[2 * i];
    y[2 * i + 1] = second * cos[2 * i + 1] + first * sin[2 * i + 1];
  }
}

constexpr RotaryKernels kKernels{.turn_halves = turn_halves, .turn_pairs = turn_pairs};

}  // namespace

const RotaryKernels RotaryKernels::CPU_CAPABILITY = kKernels;

}  // namespace onnxtorch
