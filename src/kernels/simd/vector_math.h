// Functions of one float without branches, so that a loop that calls them is compiled to vectors.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/simd/inline.h"

namespace onnxtorch {

// e to the power of x, which is not positive, to about one unit in the last place.
ONNX_TORCH_INLINE float exp_of(float x) {
  constexpr float kLog2E = 1.44269504F, kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
  constexpr float kRounder = 12582912;  // 1.5 * 2^23: a sum with it is rounded to an integer, which is in its last bits
  x = x < -104 ? -104 : x;
  const float shifted = x * kLog2E + kRounder, n = shifted - kRounder;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  // 2^n itself is denormal, or too small, where the result is.
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRounder);
  const uint32_t half = static_cast<uint32_t>(static_cast<int32_t>(exponent) >> 1);
  return (p * r * r + r + 1) * std::bit_cast<float>((half + 127) << 23) *
         std::bit_cast<float>((exponent - half + 127) << 23);
}

ONNX_TORCH_INLINE float sigmoid_of(float x) {
  const float power = exp_of(-std::abs(x));
  return (x < 0 ? power : 1) / (1 + power);
}

// tanh(x) is x + x³ p(x²) to two units in the last place below a number: p's factors, from that of its highest power.
constexpr float kNearZero = 0.625F;
constexpr std::array kTanhNearZero = {-5.704973e-3F, 2.0639073e-2F, -5.373971e-2F, 1.3331442e-1F, -3.333328e-1F};

// To about two units in the last place: near zero, the other way would lose digits.
ONNX_TORCH_INLINE float tanh_of(float x) {
  const float a = std::abs(x), square = a * a, power = exp_of(-2 * a);
  float p = kTanhNearZero[0];
  p = p * square + kTanhNearZero[1];
  p = p * square + kTanhNearZero[2];
  p = p * square + kTanhNearZero[3];
  p = p * square + kTanhNearZero[4];
  return std::copysign(a < kNearZero ? a + a * square * p : (1 - power) / (1 + power), x);
}

}  // namespace onnxtorch
