// One argument of Translator::call.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "translate/value.h"

namespace onnxtorch {

struct None {};
inline constexpr None none;

struct Arg {
  using Data = std::variant<None, bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                            std::vector<std::string>, c10::ScalarType, Value, Values>;
  Data data;
  std::string name = {};  // empty: positional

  Arg(None) {}                                             // NOLINT: conversions are the point here
  Arg(bool x) : data(x) {}                                 // NOLINT
  Arg(int x) : data(int64_t{x}) {}                         // NOLINT
  Arg(int64_t x) : data(x) {}                              // NOLINT
  Arg(double x) : data(x) {}                               // NOLINT
  Arg(const char* x) : data(std::string(x)) {}             // NOLINT
  Arg(std::string x) : data(std::move(x)) {}               // NOLINT
  Arg(std::vector<int64_t> x) : data(std::move(x)) {}      // NOLINT
  Arg(std::vector<double> x) : data(std::move(x)) {}       // NOLINT
  Arg(std::vector<std::string> x) : data(std::move(x)) {}  // NOLINT
  Arg(c10::ScalarType x) : data(x) {}                      // NOLINT
  Arg(ElementType x) : data(storage_dtype(x)) {}           // NOLINT: an ONNX type stands for its storage dtype
  Arg(Value x) {                                           // NOLINT: an absent value is None
    if (!x.absent()) data = std::move(x);
  }
  Arg(Values x) : data(std::move(x)) {}  // NOLINT: a list

  template <typename T>
  Arg(const std::optional<T>& x) {  // NOLINT: nothing is None
    if (x) data = Arg(*x).data;
  }
};

template <typename T>
Arg kw(std::string name, T&& value) {
  Arg arg(std::forward<T>(value));
  arg.name = std::move(name);
  return arg;
}

}  // namespace onnxtorch
