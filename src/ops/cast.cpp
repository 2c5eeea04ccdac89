// Cast, CastLike, BitCast.
#include "ops/cast.h"

#include <algorithm>
#include <cctype>

#include "kernels/standard/small_float.h"
#include "ops/arithmetic.h"
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

using enum ElementType;
using c10::ScalarType;

bool is_integer(ElementType type) {
  return c10::isIntegralType(storage_dtype(type), /*includeBool=*/false) && type != String;
}

Value to_dtype(Translator& t, const Value& v, ScalarType dtype) { return t.call("aten::to", {v, kw("dtype", dtype)}); }

// Reads the bits of v as another dtype, in a copy: TorchScript finds no view as another dtype.
Value reinterpreted(Translator& t, const Value& v, ScalarType dtype) {
  return t.call("aten::view_copy", {v, kw("dtype", dtype)});
}

// Gives the type that string_to_number reads for a type: as precise, and of the same kind.
ElementType parsed_type(ElementType to) {
  if (to == Bool || to == Float || to == Uint64) return to;
  return is_integer(to) ? Int64 : Double;
}

Value parsed(Translator& t, const Value& v, ElementType type) {
  return t.call("onnx_torch::string_to_number", {t.string_pool(), v, type}).as(type);
}

}  // namespace

Value cast(Translator& t, Value v, ElementType to, const CastOptions& options) {
  const ElementType from = v.type.element;
  if (from == to) return v;
  if (t.on_host(v) && (to == Int32 || to == Int64)) return host_cast(t, v, to);
  v = t.tensor(v);
  if (from == String) return cast(t, parsed(t, v, parsed_type(to)), to, options);
  if (to == String) {
    return t.call("onnx_torch::number_to_string", {t.string_pool(), v, from == Uint64}).as(String);
  }
  // torch's own uint64 has casts, if little else.
  if (from == Uint64 && is_floating(to)) v = reinterpreted(t, v, ScalarType::UInt64);
  if (is_small_float(to)) {
    return t.call("onnx_torch::cast_small_float", {v, static_cast<int64_t>(to), options.saturate, options.round_mode})
        .as(to);
  }
  // ATen has few casts of the 8-bit floats, but that to float.
  if (c10::isFloat8Type(storage_dtype(from))) return cast(t, to_dtype(t, v, ScalarType::Float).as(Float), to, options);
  if (to == Uint64 && is_floating(from)) {
    return reinterpreted(t, to_dtype(t, v, ScalarType::UInt64), ScalarType::Long).as(to);
  }
  if (info(to).wrap == Wrap::Unsigned || info(to).wrap == Wrap::Signed) {
    return to_dtype(t, wrapped(t, to_dtype(t, v, ScalarType::Long), to), storage_dtype(to)).as(to);
  }
  if (storage_dtype(from) == storage_dtype(to)) return v.as(to);
  return to_dtype(t, v, storage_dtype(to)).as(to);
}

namespace {

CastOptions options_of(const NodeView& n) {
  CastOptions options;
  if (n.has_attribute("saturate")) options.saturate = n.attr_int("saturate") != 0;
  if (n.has_attribute("round_mode")) options.round_mode = n.attr_string("round_mode");
  return options;
}

// Translates Cast-1, which names the type.
Values cast_1(Translator& t, const NodeView& n) {
  std::string name = n.attr_string("to");
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  const ElementType to = element_type_named(name);
  if (to == Undefined) n.fail("there is no element type " + name);
  return {cast(t, n.input(0), to)};
}

Values cast_6(Translator& t, const NodeView& n) { return {cast(t, n.input(0), n.attr_element("to"), options_of(n))}; }

Values cast_like(Translator& t, const NodeView& n) { return {cast(t, n.input(0), n.element(1), options_of(n))}; }

// --- BitCast ---

ElementType signed_integer(int bits) {
  for (const ElementType type : {Int2, Int4, Int8, Int16, Int32, Int64}) {
    if (info(type).bits == bits) return type;
  }
  return Undefined;
}

// Gives the format of a type that is stored by its values, not its bits; null for others.
const SmallFloat* stored_by_value(ElementType type) {
  if (info(type).bits >= 8) return nullptr;
  const auto* format = std::ranges::find(kSmallFloats, type, &SmallFloat::type);
  return format == std::end(kSmallFloats) ? nullptr : format;
}

std::vector<Arg> with_format(const Value& v, const SmallFloat& format) {
  return {v, format.exponent_bits, format.mantissa_bits, format.bias};
}

// Gives the bits of v as `integer`; from_bits goes back.
Value bits_of(Translator& t, const Value& v, ElementType integer) {
  const ElementType from = v.type.element;
  if (is_integer(from) || from == Bool) return cast(t, v, integer);
  if (const SmallFloat* format = stored_by_value(from)) {
    return cast(t, t.call("small_float_code", with_format(v, *format)).as(Int64), integer);
  }
  return reinterpreted(t, v, storage_dtype(integer)).as(integer);
}

Value from_bits(Translator& t, const Value& bits, ElementType to) {
  if (is_integer(to) || to == Bool) return cast(t, bits, to);
  if (const SmallFloat* format = stored_by_value(to)) {
    return to_dtype(t, t.call("small_float_value", with_format(bits, *format)), storage_dtype(to)).as(to);
  }
  return reinterpreted(t, bits, storage_dtype(to)).as(to);
}

Values bit_cast(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0);
  const ElementType from = x.type.element, to = n.attr_element("to");
  if (from == String || to == String || info(from).bits != info(to).bits) {
    n.fail("the bits of " + std::string(info(from).name) + " cannot be taken as " + std::string(info(to).name));
  }
  if (from == to) return {x};
  return {from_bits(t, bits_of(t, x, signed_integer(info(to).bits)), to)};
}

}  // namespace

void register_cast_ops(Registry& r) {
  r.op("Cast").since(1, cast_1).since(6, cast_6).reviewed_to(28);  // 19 has saturate, 24 round_mode
  r.op("CastLike").since(15, cast_like).reviewed_to(25);           // 19 has saturate, 24 round_mode
  r.op("BitCast").since(26, bit_cast).reviewed_to(26);
}

}  // namespace onnxtorch
