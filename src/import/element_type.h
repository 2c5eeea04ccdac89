// ONNX's element types and how each is stored inside a graph. The one table of this is in element_type.cpp.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string_view>

namespace onnxtorch {

// The numbers of TensorProto.DataType.
enum class ElementType : int32_t {
  Undefined = 0, Float = 1, Uint8 = 2, Int8 = 3, Uint16 = 4, Int16 = 5, Int32 = 6, Int64 = 7, String = 8, Bool = 9,
  Float16 = 10, Double = 11, Uint32 = 12, Uint64 = 13, Complex64 = 14, Complex128 = 15, Bfloat16 = 16,
  Float8e4m3fn = 17, Float8e4m3fnuz = 18, Float8e5m2 = 19, Float8e5m2fnuz = 20, Uint4 = 21, Int4 = 22,
  Float4e2m1 = 23, Float8e8m0 = 24, Uint2 = 25, Int2 = 26, Float6e2m3 = 27, Float6e3m2 = 28,
};

enum class Wrap : uint8_t {
  None,      // the stored dtype computes as the ONNX type does
  Unsigned,  // stored in a wider signed dtype: keep the low `bits` after arithmetic
  Signed,    // 2 or 4 bits in an int8: keep the low `bits`, sign-extended
  Bits64,    // uint64: the same 64 bits in an int64; order and division need care
};

struct ElementInfo {
  ElementType type;
  std::string_view name;      // as in ONNX type strings: "float", "uint16", "float8e4m3fn"
  c10::ScalarType storage;    // the dtype inside a graph; ids of a StringPool for strings
  int bits;                   // of one element of the ONNX type
  Wrap wrap;
  std::string_view numpy;     // the name of the numpy or ml_dtypes dtype
};

const ElementInfo& info(ElementType type);
bool is_element_type(int64_t number);  // of TensorProto.DataType, other than Undefined
ElementType element_type_named(std::string_view onnx_name);  // Undefined where there is none
ElementType element_type_of_numpy(std::string_view numpy_name);
ElementType element_type_of(c10::ScalarType dtype);  // that which computes as the dtype does

inline c10::ScalarType storage_dtype(ElementType type) { return info(type).storage; }
bool is_floating(ElementType type);   // any width, not complex
bool is_differentiable(ElementType type);  // floats that torch computes gradients for
bool is_small_float(ElementType type);  // 8, 6 or 4 bits

}  // namespace onnxtorch
