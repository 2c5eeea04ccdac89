// What the passes on numbers of 8 bits ask of a graph's nodes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

namespace onnxtorch {

constexpr auto kAdd = "aten::add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor";
constexpr auto kSub = "aten::sub(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor";
constexpr auto kMul = "aten::mul(Tensor self, Tensor other) -> Tensor";
constexpr auto kDiv = "aten::div(Tensor self, Tensor other) -> Tensor";
constexpr auto kRelu = "aten::relu(Tensor self) -> Tensor";
constexpr auto kRound = "aten::round(Tensor self) -> Tensor";
constexpr auto kPad = "aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor";
constexpr auto kTo =
    "aten::to(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False, "
    "MemoryFormat? memory_format=None) -> Tensor(a)";

// What computes the value, if it is this operator.
inline const torch::jit::Node* as(const torch::jit::Value* value, const char* schema) {
  return value->node()->matches(schema) ? value->node() : nullptr;
}

inline bool is_8_bit(at::ScalarType type) { return type == c10::kByte || type == c10::kChar; }

}  // namespace onnxtorch
