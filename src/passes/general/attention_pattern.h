// The pattern of attention: a softmax between two products of matrices.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <functional>

#include "graph/program.h"

namespace onnxtorch {

// An attention: softmax(query @ key * scale + mask) @ value.
struct Attention {
  torch::jit::Value *query, *key, *value;
  torch::jit::Value* mask = nullptr;  // the sum of all that is added
  double scale = 1;
  bool without_nan = false;  // rows that are nothing but NaN, all masked, become zeros
};

// Visits each attention with the node of its last product, which the visit may give another node to stand for.
void for_each_attention(Program& program, const std::function<void(torch::jit::Node*, const Attention&)>& visit);

}  // namespace onnxtorch
