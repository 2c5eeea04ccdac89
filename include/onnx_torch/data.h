// The values that a model takes and gives: tensors, strings, sequences, maps, or nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "onnx_torch/visibility.h"

namespace onnxtorch {

// A tensor of strings, in row-major order.
struct Strings {
  std::vector<std::string> values;
  std::vector<int64_t> sizes;
};

// Keys and values, position by position.
struct Map {
  std::variant<at::Tensor, Strings> keys, values;  // of rank 1
};

class Data;

struct Sequence {
  std::vector<Data> items;
};

// A value that a model takes or gives. A tensor is in the dtype that torch has for its element type, bfloat16, float8
// and uint16 to uint64 included; elements of 2, 4 and 6 bits come one a byte.
class ONNX_TORCH_API Data {
 public:
  Data() = default;                                         // an absent optional
  Data(at::Tensor tensor) : value_(std::move(tensor)) {}    // NOLINT: conversions are the point here
  Data(Strings strings) : value_(std::move(strings)) {}     // NOLINT
  Data(Sequence sequence) : value_(std::move(sequence)) {}  // NOLINT
  Data(Map map) : value_(std::move(map)) {}                 // NOLINT

  using Value = std::variant<std::monostate, at::Tensor, Strings, Sequence, Map>;
  const Value& value() const { return value_; }
  bool absent() const { return std::holds_alternative<std::monostate>(value_); }

  // Each gives the value, and throws Error where it is something else.
  at::Tensor tensor() const;
  const Strings& strings() const;
  const std::vector<Data>& sequence() const;
  const Map& map() const;

 private:
  template <typename T>
  const T& get() const;

  Value value_;
};

// The inputs of a run by name, such as {{"x", x}, {"y", y}}.
class Feeds {
 public:
  Feeds(std::map<std::string, Data> values) : values_(std::move(values)) {}                     // NOLINT
  Feeds(std::initializer_list<std::pair<const std::string, Data>> values) : values_(values) {}  // NOLINT
  const std::map<std::string, Data>& values() const { return values_; }

 private:
  std::map<std::string, Data> values_;
};

// The results of a run: values in the order asked for, with their names.
class ONNX_TORCH_API Outputs {
 public:
  Outputs(std::vector<std::string> names, std::vector<Data> values)
      : names_(std::move(names)), values_(std::move(values)) {}

  const Data& operator[](size_t i) const;               // throws InputError where there is none
  const Data& operator[](std::string_view name) const;  // likewise
  size_t size() const { return values_.size(); }
  const std::vector<std::string>& names() const { return names_; }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  std::vector<std::string> names_;
  std::vector<Data> values_;
};

}  // namespace onnxtorch
