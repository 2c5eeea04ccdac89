// ONNX's floating formats of 8, 6 and 4 bits: the table that describes them, and rounding to them. Values are rounded
// once, from their exact value, whatever type they come from.
#pragma once

#include <bit>
#include <cstdint>

#include "base/both_sides.h"
#include "onnx_torch/types.h"

namespace onnxtorch {

struct SmallFloat {
  ElementType type;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  uint8_t max_code;        // the largest finite value
  uint8_t overflow_code;   // an overflow that does not saturate: infinity, NaN or, without either, the largest value
  uint8_t nan_code;        // without a NaN, a zero: of the opposite sign, as ml_dtypes has it
  bool has_negative_zero;  // without it, that code is the only NaN
};

// float8e8m0 is not among them: it has no sign, no zero and no mantissa, and rounds by rules of its own.
inline constexpr SmallFloat kSmallFloats[] = {
    {ElementType::Float8e4m3fn, 4, 3, 7, 0x7E, 0x7F, 0x7F, true},
    {ElementType::Float8e4m3fnuz, 4, 3, 8, 0x7F, 0x80, 0x80, false},
    {ElementType::Float8e5m2, 5, 2, 15, 0x7B, 0x7C, 0x7E, true},
    {ElementType::Float8e5m2fnuz, 5, 2, 16, 0x7F, 0x80, 0x80, false},
    {ElementType::Float4e2m1, 2, 1, 1, 0x07, 0x07, 0x08, true},
    {ElementType::Float6e2m3, 2, 3, 1, 0x1F, 0x1F, 0x20, true},
    {ElementType::Float6e3m2, 3, 2, 3, 0x1F, 0x1F, 0x20, true},
};

// The rounding of a value between two powers of two to a float8e8m0.
enum class Rounding : uint8_t { Up, Down, Nearest };

// A number taken apart: significand * 2^exponent. Infinity looks like the power of two above the largest finite value.
struct Unpacked {
  uint64_t significand;
  int exponent;
  bool negative;
  bool nan;

  // Gives floor(log2) of a number that is not zero.
  ONNX_TORCH_BOTH constexpr int magnitude() const { return exponent + bits_of(significand) - 1; }
};

template <typename Bits, int kMantissaBits, int kExponentBits>
ONNX_TORCH_BOTH constexpr Unpacked unpack_ieee(Bits bits) {
  constexpr int kSpecial = (1 << kExponentBits) - 1;
  constexpr int kOneUlp = 1 - (kSpecial >> 1) - kMantissaBits;  // the exponent of the last bit of a subnormal
  const Bits mantissa = bits & ((Bits{1} << kMantissaBits) - 1);
  const int biased = static_cast<int>(bits >> kMantissaBits) & kSpecial;
  return {
      .significand = biased == 0 ? mantissa : mantissa | Bits{1} << kMantissaBits,
      .exponent = kOneUlp + (biased == 0 ? 0 : biased - 1),
      .negative = (bits >> (kMantissaBits + kExponentBits)) != 0,
      .nan = biased == kSpecial && mantissa != 0,
  };
}

ONNX_TORCH_BOTH constexpr Unpacked unpack(float x) { return unpack_ieee<uint32_t, 23, 8>(std::bit_cast<uint32_t>(x)); }
ONNX_TORCH_BOTH constexpr Unpacked unpack(double x) {
  return unpack_ieee<uint64_t, 52, 11>(std::bit_cast<uint64_t>(x));
}
ONNX_TORCH_BOTH constexpr Unpacked unpack(uint64_t x) { return {x, 0, false, false}; }
ONNX_TORCH_BOTH constexpr Unpacked unpack(int64_t x) {
  return {x < 0 ? uint64_t{0} - static_cast<uint64_t>(x) : static_cast<uint64_t>(x), 0, x < 0, false};
}

// Gives value / 2^bits, to the nearest integer, ties to even; a value has at most 53 significant bits where bits > 63.
ONNX_TORCH_BOTH constexpr uint64_t shift_right_to_even(uint64_t value, int bits) {
  if (bits <= 0) return value << -bits;
  if (bits > 63) return 0;
  const uint64_t half = uint64_t{1} << (bits - 1);
  const uint64_t rest = value & ((half << 1) - 1);
  const uint64_t result = value >> bits;
  return result + ((rest + (result & 1)) > half);
}

ONNX_TORCH_BOTH constexpr uint8_t encode(const Unpacked& x, const SmallFloat& format, bool saturate) {
  const int sign = x.negative ? 1 << (format.exponent_bits + format.mantissa_bits) : 0;
  if (x.nan) return format.has_negative_zero ? format.nan_code ^ sign : format.nan_code;
  if (x.significand == 0) return format.has_negative_zero ? sign : 0;

  const int smallest_normal = 1 - format.bias;
  const int magnitude = x.magnitude() < smallest_normal ? smallest_normal : x.magnitude();
  const uint64_t rounded = shift_right_to_even(x.significand, magnitude - format.mantissa_bits - x.exponent);
  // The significand's leading bit is added to the exponent field, and so is a carry out of rounding.
  const uint64_t code = (static_cast<uint64_t>(magnitude - smallest_normal) << format.mantissa_bits) + rounded;

  if (code > format.max_code) return sign | (saturate ? format.max_code : format.overflow_code);
  if (code == 0 && !format.has_negative_zero) return 0;
  return sign | static_cast<int>(code);
}

// Gives the value of a code that is neither infinite nor NaN.
constexpr float decode(uint8_t code, const SmallFloat& format) {
  const int magnitude_bits = format.exponent_bits + format.mantissa_bits;
  const int mantissa = code & ((1 << format.mantissa_bits) - 1);
  const int biased = (code & ((1 << magnitude_bits) - 1)) >> format.mantissa_bits;
  auto value = static_cast<float>(biased == 0 ? mantissa : mantissa | 1 << format.mantissa_bits);
  int exponent = (biased == 0 ? 1 : biased) - format.bias - format.mantissa_bits;
  for (; exponent > 0; --exponent) value *= 2;
  for (; exponent < 0; ++exponent) value /= 2;
  return code >> magnitude_bits ? -value : value;
}

// Encodes a number as float8e8m0. Codes 0 to 254 are 2^-127 to 2^127; 255 is NaN. ONNX leaves negative numbers open:
// they become NaN.
ONNX_TORCH_BOTH constexpr uint8_t encode_e8m0(const Unpacked& x, bool saturate, Rounding rounding) {
  constexpr uint8_t kMax = 254, kNan = 255;
  const bool zero = x.significand == 0;
  if (x.nan || (x.negative && !zero)) return kNan;

  const bool exact = is_power_of_two(x.significand);
  const int magnitude = zero ? 0 : x.magnitude();
  if (zero || magnitude < -127) return saturate ? 0 : kNan;
  if (magnitude > 127 || (magnitude == 127 && !exact)) return saturate ? kMax : kNan;
  const bool upper_half = exact ? false : (x.significand >> (bits_of(x.significand) - 2)) & 1;
  const bool up = !exact && (rounding == Rounding::Up || (rounding == Rounding::Nearest && upper_half));
  return magnitude + 127 + up;
}

// One cast, with all it needs.
struct SmallFloatCast {
  SmallFloat format;
  bool e8m0;  // instead of the format
  bool saturate;
  Rounding rounding;
  uint16_t halves[64];  // the bits of each code's value, where values are stored

  ONNX_TORCH_BOTH constexpr uint8_t code(const Unpacked& x) const {
    return e8m0 ? encode_e8m0(x, saturate, rounding) : encode(x, format, saturate);
  }
  ONNX_TORCH_BOTH constexpr uint16_t half(const Unpacked& x) const { return halves[encode(x, format, saturate)]; }
};

}  // namespace onnxtorch
