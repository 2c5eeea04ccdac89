// What is known of a value before a run.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <optional>

namespace onnxtorch {

// The element type, where it is known and the value is a tensor.
inline std::optional<c10::ScalarType> type_of(const torch::jit::Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  return type ? type->scalarType() : std::nullopt;
}

// Whether a tensor is known to have as many elements.
inline bool has_at_least(const torch::jit::Value* value, size_t elements) {
  const auto known = value->type()->expectRef<c10::TensorType>().numel();
  return known && *known >= elements;
}

}  // namespace onnxtorch
