// float16 and bfloat16 as bits: conversions to float, and from float, rounded to the nearest with ties to even.
#pragma once

#include <bit>
#include <cstdint>

#include "base/both_sides.h"

namespace onnxtorch {

ONNX_TORCH_BOTH constexpr float of_bfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

ONNX_TORCH_BOTH constexpr uint16_t to_bfloat16(float x) {
  if (x != x) return 0x7FC0;
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

// Widens exactly. The exponent's and the mantissa's bits, put where a float has them, are the number divided by 2^112.
ONNX_TORCH_BOTH constexpr float of_float16(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000U) << 16, rest = (bits & 0x7FFFU) << 13;
  const bool is_finite = (bits & 0x7C00U) != 0x7C00U;
  const auto magnitude =
      is_finite ? std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112F) : rest | 0x7F800000U;
  return std::bit_cast<float>(sign | magnitude);
}

ONNX_TORCH_BOTH constexpr uint16_t to_float16(float x) {
  constexpr float kSmallestNormal = 0x1p-14F, kOverflow = 65520;
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000U, magnitude = bits & 0x7FFFFFFFU;
  const auto size = std::bit_cast<float>(magnitude);
  if (x != x) return static_cast<uint16_t>(sign | 0x7E00U);
  if (size >= kOverflow) return static_cast<uint16_t>(sign | 0x7C00U);
  // A float between a half and one has a last bit that is worth as much as the smallest float16, so it rounds by this
  // sum.
  if (size < kSmallestNormal)
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(size + 0.5F) - std::bit_cast<uint32_t>(0.5F)));
  constexpr uint32_t kBias = (127 - 15) << 23;
  return static_cast<uint16_t>(sign | ((magnitude - kBias + 0xFFF + (magnitude >> 13 & 1)) >> 13));
}

}  // namespace onnxtorch
