// ONNX's types, and what a model says of its inputs and outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onnx_torch/visibility.h"

namespace onnxtorch {

// The numbers of TensorProto.DataType.
enum class ElementType : int32_t {
  Undefined = 0,
  Float = 1,
  Uint8 = 2,
  Int8 = 3,
  Uint16 = 4,
  Int16 = 5,
  Int32 = 6,
  Int64 = 7,
  String = 8,
  Bool = 9,
  Float16 = 10,
  Double = 11,
  Uint32 = 12,
  Uint64 = 13,
  Complex64 = 14,
  Complex128 = 15,
  Bfloat16 = 16,
  Float8e4m3fn = 17,
  Float8e4m3fnuz = 18,
  Float8e5m2 = 19,
  Float8e5m2fnuz = 20,
  Uint4 = 21,
  Int4 = 22,
  Float4e2m1 = 23,
  Float8e8m0 = 24,
  Uint2 = 25,
  Int2 = 26,
  Float6e2m3 = 27,
  Float6e3m2 = 28,
};

// The ONNX type of a value, without its shape.
struct ValueType {
  enum class Kind : uint8_t { Tensor, Sequence, Optional, Map };

  Kind kind = Kind::Tensor;
  ElementType element = ElementType::Undefined;  // that of a tensor, or of a map's values
  ElementType key = ElementType::Undefined;      // that of a map's keys
  std::shared_ptr<const ValueType> inner;        // that of a sequence's or an optional's value

  static ValueType tensor(ElementType element) { return {Kind::Tensor, element, {}, {}}; }
  static ValueType map(ElementType key, ElementType element) { return {Kind::Map, element, key, {}}; }
  static ValueType sequence(ValueType of) {
    return {Kind::Sequence, {}, {}, std::make_shared<ValueType>(std::move(of))};
  }
  static ValueType optional(ValueType of) {
    return {Kind::Optional, {}, {}, std::make_shared<ValueType>(std::move(of))};
  }
  ONNX_TORCH_API static ValueType parse(std::string_view text);  // "seq(tensor(float))"; undefined for another text

  bool known() const { return inner ? inner->known() : element != ElementType::Undefined; }
  ONNX_TORCH_API bool operator==(const ValueType& other) const;
  ONNX_TORCH_API std::string str() const;
};

struct Dim {
  int64_t size = -1;   // -1: any
  std::string symbol;  // the model's name for it, such as "batch"; may be empty
};

struct InputSpec {
  std::string name;
  ValueType type;
  std::optional<std::vector<Dim>> dims;  // of a tensor; none: any rank
  bool has_default = false;              // an initializer has its name, so that it may be left out
};

struct OutputSpec {
  std::string name;
  ValueType type;
  std::optional<std::vector<Dim>> dims;  // as the model declares them, which need not be true; none where it does not
};

}  // namespace onnxtorch
