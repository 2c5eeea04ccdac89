// ONNX values while translating. Light on purpose: every operator family includes it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "import/element_type.h"

namespace torch::jit {
struct Value;
}

namespace onnxtorch {

// The ONNX type of a value, without its shape.
struct ValueType {
  enum class Kind : uint8_t { Tensor, Sequence, Optional, Map };

  Kind kind = Kind::Tensor;
  ElementType element = ElementType::Undefined;  // of a tensor, or of a map's values
  ElementType key = ElementType::Undefined;      // of a map's keys
  std::shared_ptr<const ValueType> inner;        // of a sequence or an optional

  static ValueType tensor(ElementType element) { return {Kind::Tensor, element, {}, {}}; }
  static ValueType map(ElementType key, ElementType element) { return {Kind::Map, element, key, {}}; }
  static ValueType sequence(ValueType of) { return {Kind::Sequence, {}, {}, std::make_shared<ValueType>(std::move(of))}; }
  static ValueType optional(ValueType of) { return {Kind::Optional, {}, {}, std::make_shared<ValueType>(std::move(of))}; }
  static ValueType parse(std::string_view text);  // "seq(tensor(float))"; an undefined tensor where it is no type

  bool known() const { return inner ? inner->known() : element != ElementType::Undefined; }
  bool operator==(const ValueType& other) const;
  std::string str() const;
};

// A value of the graph under construction. Its TorchScript type is one of
//   Tensor      an ONNX tensor in its storage dtype (a string tensor holds ids of the run's StringPool)
//   int, int[]  an int64 tensor of rank 0 or 1 kept on the host (shape arithmetic); Translator::tensor() makes a tensor of it
//   bool, bool[]  a bool tensor of rank 0 or 1 kept on the host: a condition; likewise
//   Tensor[]    a sequence; (Tensor, Tensor) the keys and values of a map; a list of such pairs a sequence of maps
//   T?          an optional
// A default-constructed Value is an absent optional input.
struct Value {
  torch::jit::Value* graph = nullptr;
  ValueType type = {};

  bool absent() const { return graph == nullptr; }
  Value as(ValueType t) const { return {graph, std::move(t)}; }
  Value as(ElementType e) const { return {graph, ValueType::tensor(e)}; }
};

using Values = std::vector<Value>;

}  // namespace onnxtorch
