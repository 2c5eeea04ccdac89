// Functions on a graph's nodes that the passes on int8 and uint8 share.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cmath>

#include "graph/known_type.h"
#include "graph/walk.h"

namespace onnxtorch {

// The scripts of src/ops/scripts/quantization.py.
inline const auto kQuantizeLinear = c10::Symbol::fromQualString("onnx_torch::quantize_linear");
inline const auto kDequantizeLinear = c10::Symbol::fromQualString("onnx_torch::dequantize_linear");
inline const auto kDynamicQuantizeLinear = c10::Symbol::fromQualString("onnx_torch::dynamic_quantize_linear");
inline const auto kMatMulInteger = c10::Symbol::fromQualString("onnx_torch::matmul_integer");
inline const auto kConvInteger = c10::Symbol::fromQualString("onnx_torch::conv_integer");
inline const auto kQLinearMatMul = c10::Symbol::fromQualString("onnx_torch::qlinear_matmul");
inline const auto kQLinearConv = c10::Symbol::fromQualString("onnx_torch::qlinear_conv");

// Gives the node that computes the value, if it is this operator.
inline const torch::jit::Node* as(const torch::jit::Value* value, const char* schema) {
  return value->node()->matches(schema) ? value->node() : nullptr;
}

inline const torch::jit::Node* as(const torch::jit::Value* value, c10::Symbol kind) {
  return value->node()->kind() == kind ? value->node() : nullptr;
}

// Sets the sizes of the value to those of a value of the plain graph.
inline void take_sizes(torch::jit::Value* value, const torch::jit::Value* plain) {
  const auto type = type_of(value);
  if (type) value->setType(type_like(plain, type));
}

// Replaces the only result of a node by what `instead` inserts before it; null leaves the node as it is.
template <typename Instead>
void replace_each(torch::jit::Graph& graph, const Instead& instead) {
  for_each_node(graph.block(), [&](torch::jit::Node* node) {
    const torch::jit::WithInsertPoint at(node);
    torch::jit::Value* const result = instead(node);
    if (!result) return;
    take_sizes(result, node->output());
    node->output()->replaceAllUsesWith(result);
  });
}

inline bool is_8_bit(at::ScalarType type) { return type == c10::kByte || type == c10::kChar; }

// Tells whether a number is one that a type of 8 bits has.
inline bool is_8_bit_number(double number, at::ScalarType type) {
  const double low = type == c10::kByte ? 0 : -128;
  return number >= low && number <= low + 255 && number == std::trunc(number);
}

}  // namespace onnxtorch
