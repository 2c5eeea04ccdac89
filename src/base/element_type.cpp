#include "base/element_type.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

using enum ElementType;
using S = c10::ScalarType;

constexpr std::array<ElementInfo, 29> kTypes{{
    {Undefined, "undefined", S::Undefined, 0, Wrap::None, ""},
    {Float, "float", S::Float, 32, Wrap::None, "float32"},
    {Uint8, "uint8", S::Byte, 8, Wrap::None, "uint8"},
    {Int8, "int8", S::Char, 8, Wrap::None, "int8"},
    {Uint16, "uint16", S::Int, 16, Wrap::Unsigned, "uint16"},
    {Int16, "int16", S::Short, 16, Wrap::None, "int16"},
    {Int32, "int32", S::Int, 32, Wrap::None, "int32"},
    {Int64, "int64", S::Long, 64, Wrap::None, "int64"},
    {String, "string", S::Long, 0, Wrap::None, "object"},
    {Bool, "bool", S::Bool, 8, Wrap::None, "bool"},
    {Float16, "float16", S::Half, 16, Wrap::None, "float16"},
    {Double, "double", S::Double, 64, Wrap::None, "float64"},
    {Uint32, "uint32", S::Long, 32, Wrap::Unsigned, "uint32"},
    {Uint64, "uint64", S::Long, 64, Wrap::Bits64, "uint64"},
    {Complex64, "complex64", S::ComplexFloat, 64, Wrap::None, "complex64"},
    {Complex128, "complex128", S::ComplexDouble, 128, Wrap::None, "complex128"},
    {Bfloat16, "bfloat16", S::BFloat16, 16, Wrap::None, "bfloat16"},
    {Float8e4m3fn, "float8e4m3fn", S::Float8_e4m3fn, 8, Wrap::None, "float8_e4m3fn"},
    {Float8e4m3fnuz, "float8e4m3fnuz", S::Float8_e4m3fnuz, 8, Wrap::None, "float8_e4m3fnuz"},
    {Float8e5m2, "float8e5m2", S::Float8_e5m2, 8, Wrap::None, "float8_e5m2"},
    {Float8e5m2fnuz, "float8e5m2fnuz", S::Float8_e5m2fnuz, 8, Wrap::None, "float8_e5m2fnuz"},
    {Uint4, "uint4", S::Byte, 4, Wrap::Unsigned, "uint4"},
    {Int4, "int4", S::Char, 4, Wrap::Signed, "int4"},
    {Float4e2m1, "float4e2m1", S::Half, 4, Wrap::None, "float4_e2m1fn"},
    {Float8e8m0, "float8e8m0", S::Float8_e8m0fnu, 8, Wrap::None, "float8_e8m0fnu"},
    {Uint2, "uint2", S::Byte, 2, Wrap::Unsigned, "uint2"},
    {Int2, "int2", S::Char, 2, Wrap::Signed, "int2"},
    {Float6e2m3, "float6e2m3", S::Half, 6, Wrap::None, "float6_e2m3fn"},
    {Float6e3m2, "float6e3m2", S::Half, 6, Wrap::None, "float6_e3m2fn"},
}};

template <typename Field>
ElementType find(Field field, std::string_view name) {
  for (const ElementInfo& row : kTypes) {
    if (row.*field == name) return row.type;
  }
  return Undefined;
}

}  // namespace

const ElementInfo& info(ElementType type) {
  const auto index = static_cast<size_t>(type);
  if (index >= kTypes.size()) throw InvalidModelError("unknown element type " + std::to_string(index));
  return kTypes[index];
}

bool is_element_type(int64_t number) { return number > 0 && number < static_cast<int64_t>(kTypes.size()); }

ElementType element_type_named(std::string_view onnx_name) { return find(&ElementInfo::name, onnx_name); }
ElementType element_type_of_numpy(std::string_view numpy_name) { return find(&ElementInfo::numpy, numpy_name); }

ElementType element_type_of(c10::ScalarType dtype) {
  const auto bits = static_cast<int>(8 * c10::elementSize(dtype));
  const auto same = [&](const ElementInfo& row) { return row.storage == dtype && row.bits == bits; };
  const auto found = std::ranges::find_if(kTypes, same);
  return found == kTypes.end() ? Undefined : found->type;
}

bool is_small_float(ElementType type) { return info(type).bits <= 8 && is_floating(type); }

bool is_floating(ElementType type) {
  const S storage = info(type).storage;
  return c10::isFloatingType(storage) || c10::isFloat8Type(storage);
}

bool is_differentiable(ElementType type) { return is_floating(type) && info(type).bits >= 16; }

}  // namespace onnxtorch
