// What is known of a value before a run.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace onnxtorch {

// Whether a tensor is known to have as many elements.
inline bool has_at_least(const torch::jit::Value* value, size_t elements) {
  const auto known = value->type()->expectRef<c10::TensorType>().numel();
  return known && *known >= elements;
}

}  // namespace onnxtorch
