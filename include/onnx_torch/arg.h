// One argument of a call that a translator writes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "onnx_torch/types.h"

namespace onnxtorch {

struct None {};
inline constexpr None none;

// An argument of a call. `Value` is a value of the graph; an absent one is none.
template <typename Value>
struct BasicArg {
  using Values = std::vector<Value>;
  using Data = std::variant<None, bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                            std::vector<std::string>, c10::ScalarType, ElementType, Value, Values>;
  Data data;
  std::string name = {};  // empty: positional

  BasicArg(None) {}                                             // NOLINT: conversions are the point here
  BasicArg(bool x) : data(x) {}                                 // NOLINT
  BasicArg(int x) : data(int64_t{x}) {}                         // NOLINT
  BasicArg(int64_t x) : data(x) {}                              // NOLINT
  BasicArg(double x) : data(x) {}                               // NOLINT
  BasicArg(const char* x) : data(std::string(x)) {}             // NOLINT
  BasicArg(std::string x) : data(std::move(x)) {}               // NOLINT
  BasicArg(std::vector<int64_t> x) : data(std::move(x)) {}      // NOLINT
  BasicArg(std::vector<double> x) : data(std::move(x)) {}       // NOLINT
  BasicArg(std::vector<std::string> x) : data(std::move(x)) {}  // NOLINT
  BasicArg(c10::ScalarType x) : data(x) {}                      // NOLINT
  BasicArg(ElementType x) : data(x) {}                          // NOLINT: stands for the dtype that stores it
  BasicArg(Value x) {                                           // NOLINT
    if (!x.absent()) data = std::move(x);
  }
  BasicArg(Values x) : data(std::move(x)) {}  // NOLINT: a list

  template <typename T>
  BasicArg(const std::optional<T>& x) {  // NOLINT: nothing is none
    if (x) data = BasicArg(*x).data;
  }
};

// An argument by name, of whatever kind of argument the call takes.
template <typename T>
struct Keyword {
  std::string name;
  T value;

  template <typename Value>
  operator BasicArg<Value>() const {  // NOLINT
    BasicArg<Value> arg(value);
    arg.name = name;
    return arg;
  }
};

template <typename T>
Keyword<T> kw(std::string name, T value) {
  return {std::move(name), std::move(value)};
}

}  // namespace onnxtorch
