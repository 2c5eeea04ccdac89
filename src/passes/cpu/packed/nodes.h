// What the passes on numbers of 8 bits ask of a graph's nodes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cmath>

namespace onnxtorch {

// Scripts of src/ops/scripts/quantization.py.
inline const auto kQuantizeLinear = c10::Symbol::fromQualString("onnx_torch::quantize_linear");
inline const auto kDequantizeLinear = c10::Symbol::fromQualString("onnx_torch::dequantize_linear");
inline const auto kDynamicQuantizeLinear = c10::Symbol::fromQualString("onnx_torch::dynamic_quantize_linear");

// What computes the value, if it is this operator.
inline const torch::jit::Node* as(const torch::jit::Value* value, const char* schema) {
  return value->node()->matches(schema) ? value->node() : nullptr;
}

inline const torch::jit::Node* as(const torch::jit::Value* value, c10::Symbol kind) {
  return value->node()->kind() == kind ? value->node() : nullptr;
}

inline bool is_8_bit(at::ScalarType type) { return type == c10::kByte || type == c10::kChar; }

// Whether it is a number that a type of 8 bits has.
inline bool is_8_bit_number(double number, at::ScalarType type) {
  const double low = type == c10::kByte ? 0 : -128;
  return number >= low && number <= low + 255 && number == std::trunc(number);
}

}  // namespace onnxtorch
