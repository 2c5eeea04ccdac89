#include "import/storage.h"

#include <ATen/ATen.h>

#include <cmath>
#include <string>

namespace onnxtorch {
namespace {

using enum ElementType;
using S = c10::ScalarType;

// Gives the values of a 4- or 6-bit float's codes, in order: sign, exponent with bias 2^(e-1)-1, mantissa; no Inf, no
// NaN.
at::Tensor code_values(int exponent_bits, int mantissa_bits) {
  const int count = 1 << (1 + exponent_bits + mantissa_bits);
  at::Tensor values = at::empty({count}, S::Float);
  float* out = values.data_ptr<float>();
  const int bias = (1 << (exponent_bits - 1)) - 1;
  for (int code = 0; code < count; ++code) {
    const int mantissa = code & ((1 << mantissa_bits) - 1);
    const int exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const float fraction = std::ldexp(static_cast<float>(mantissa), -mantissa_bits);
    const float magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
    out[code] = code >= count / 2 ? -magnitude : magnitude;
  }
  return values.to(S::Half);
}

const at::Tensor& code_values(ElementType type) {
  static const at::Tensor e2m1 = code_values(2, 1), e2m3 = code_values(2, 3), e3m2 = code_values(3, 2);
  return type == Float4e2m1 ? e2m1 : type == Float6e2m3 ? e2m3 : e3m2;
}

bool stored_as_values(ElementType type) { return type == Float4e2m1 || type == Float6e2m3 || type == Float6e3m2; }

// Gives the codes of values that a type holds exactly: their indices among the ascending magnitudes, with the sign on
// top.
at::Tensor codes_of(ElementType type, const at::Tensor& values) {
  const at::Tensor& table = code_values(type);
  const int64_t half = table.numel() / 2;
  const at::Tensor magnitudes = table.slice(0, 0, half).to(S::Float).contiguous();
  const at::Tensor codes = at::searchsorted(magnitudes, values.abs().to(S::Float).contiguous());
  return at::add(codes, at::signbit(values).to(S::Long), half).to(S::Byte);
}

at::Tensor sign_extended(const at::Tensor& bytes, int bits) {
  return bytes.view(S::Char).bitwise_left_shift(8 - bits).bitwise_right_shift_(8 - bits);
}

}  // namespace

c10::ScalarType native_dtype(ElementType type) {
  switch (type) {
    case Uint16:
      return S::UInt16;
    case Uint32:
      return S::UInt32;
    case Uint64:
      return S::UInt64;
    default:
      return is_small_float(type) ? S::Byte : storage_dtype(type);
  }
}

at::Tensor to_storage(ElementType type, const at::Tensor& native) {
  const ElementInfo& t = info(type);
  if (stored_as_values(type)) return code_values(type).index({native.to(S::Long)});
  switch (t.wrap) {
    case Wrap::Bits64:
      return native.view(S::Long);
    case Wrap::Signed:
      return sign_extended(native, t.bits);
    case Wrap::Unsigned:
      return t.bits < 8 ? native.bitwise_and((1 << t.bits) - 1) : native.to(t.storage);
    case Wrap::None:
      break;
  }
  return native.scalar_type() == t.storage ? native : native.view(t.storage);
}

at::Tensor from_storage(ElementType type, const at::Tensor& stored) {
  TORCH_CHECK(type != Undefined, "the element type of a value is not known");
  if (stored_as_values(type)) return codes_of(type, stored);
  const S native = native_dtype(type);
  if (stored.scalar_type() == native) return stored;
  // Only uint16 and uint32 have another width inside.
  return info(type).wrap == Wrap::Unsigned ? stored.to(native) : stored.view(native);
}

void unpack_bits(std::string_view packed, int bits, std::span<uint8_t> codes) {
  TORCH_CHECK(packed.size() * 8 >= codes.size() * bits, "expected ", (codes.size() * bits + 7) / 8,
              " bytes of packed data, found ", packed.size());
  for (size_t i = 0; i < codes.size(); ++i) {
    const size_t bit = i * bits;
    const auto low = static_cast<uint8_t>(packed[bit / 8]);
    const auto high = bit / 8 + 1 < packed.size() ? static_cast<uint8_t>(packed[bit / 8 + 1]) : 0;
    codes[i] = ((low | high << 8) >> (bit % 8)) & ((1 << bits) - 1);
  }
}

}  // namespace onnxtorch
