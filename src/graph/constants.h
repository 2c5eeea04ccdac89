// The values of a program's graph that are known before it runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <unordered_map>

#include "graph/program.h"

namespace torch::jit {
struct Value;
}

namespace onnxtorch {

class Constants {
 public:
  explicit Constants(const Program& program);

  std::optional<c10::IValue> operator()(const torch::jit::Value* value) const;

  // Gives a constant tensor, also where the value is a view of one. An absent tensor is undefined.
  std::optional<at::Tensor> tensor(const torch::jit::Value* value) const;

  // Gives the only element of a constant tensor, on whatever device, or a constant number.
  std::optional<double> number(const torch::jit::Value* value) const;

  template <typename T>
  std::optional<T> get(const torch::jit::Value* value) const {
    const auto known = (*this)(value);
    return known && !known->isNone() ? std::optional(known->to<T>()) : std::nullopt;
  }

 private:
  std::unordered_map<const torch::jit::Value*, c10::IValue> values_;
};

// Tells whether no element is infinite or NaN.
bool is_finite(const at::Tensor& tensor);

}  // namespace onnxtorch
