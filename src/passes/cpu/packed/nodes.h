// What the passes on numbers of 8 bits ask of a graph's nodes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

namespace onnxtorch {

// What computes the value, if it is this operator.
inline const torch::jit::Node* as(const torch::jit::Value* value, const char* schema) {
  return value->node()->matches(schema) ? value->node() : nullptr;
}

inline bool is_8_bit(at::ScalarType type) { return type == c10::kByte || type == c10::kChar; }

}  // namespace onnxtorch
