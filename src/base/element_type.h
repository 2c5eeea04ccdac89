// ONNX's element types and how each is stored inside a graph. The one table of this is in element_type.cpp.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string_view>

#include "onnx_torch/types.h"

namespace onnxtorch {

enum class Wrap : uint8_t {
  None,      // the stored dtype computes as the ONNX type does
  Unsigned,  // stored in a wider signed dtype: keep the low `bits` after arithmetic
  Signed,    // 2 or 4 bits in an int8: keep the low `bits`, sign-extended
  Bits64,    // uint64: the same 64 bits in an int64; order and division need care
};

struct ElementInfo {
  ElementType type;
  std::string_view name;    // as in ONNX type strings: "float", "uint16", "float8e4m3fn"
  c10::ScalarType storage;  // the dtype inside a graph; ids of a StringPool for strings
  int bits;                 // of one element of the ONNX type
  Wrap wrap;
  std::string_view numpy;  // the name of the numpy or ml_dtypes dtype
};

const ElementInfo& info(ElementType type);
bool is_element_type(int64_t number);                        // whether TensorProto.DataType has it; not Undefined
ElementType element_type_named(std::string_view onnx_name);  // Undefined where there is none
ElementType element_type_of_numpy(std::string_view numpy_name);
ElementType element_type_of(c10::ScalarType dtype);  // the one that computes as the dtype does

inline c10::ScalarType storage_dtype(ElementType type) { return info(type).storage; }
bool is_floating(ElementType type);        // any width, not complex
bool is_differentiable(ElementType type);  // floats that torch computes gradients for
bool is_small_float(ElementType type);     // 8, 6 or 4 bits

}  // namespace onnxtorch
