// The choice of a graph's operators that chains can compute.
#pragma once

#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "graph/constants.h"
#include "graph/program.h"
#include "graph/writes.h"
#include "kernels/cpu/chain/program.h"
#include "kernels/simd/chain.h"

namespace onnxtorch::chain {

// The computation of an element-wise operator. Its operands are the node's first inputs; what else there is are
// numbers.
struct Element {
  Op op;
  std::vector<Type> operands;
  Type result = Type::Float;
  float a = 0, b = 0;
};

// The operators that chains can compute.
class Elements {
 public:
  // Takes float16 and bfloat16 as well where `halves` says so.
  Elements(const Program& program, const Constants& constants, const Writers& writers, bool halves);

  // Gives what a node computes; null where it is no such operator.
  const Element* element(const torch::jit::Node* node) const;
  const ChainProgram::Reduction* reduction(const torch::jit::Node* node) const;  // of an element's result

 private:
  std::optional<c10::ScalarType> likely_type(const torch::jit::Value* value) const;
  std::optional<Type> chain_type(c10::ScalarType type) const;

  std::optional<Element> chainable(torch::jit::Node* node) const;
  bool set_types(const torch::jit::Node* node, Element& element) const;
  std::optional<Element> element_of(torch::jit::Node* node) const;
  std::optional<Element> gelu(torch::jit::Node* node) const;
  std::optional<Element> leaky_relu(torch::jit::Node* node) const;
  std::optional<Element> power(torch::jit::Node* node) const;
  std::optional<Element> clamp(torch::jit::Node* node) const;
  std::optional<Element> cast(torch::jit::Node* node) const;
  std::optional<ChainProgram::Reduction> reduction_of(torch::jit::Node* node) const;

  const Constants& constants_;
  const Writers& writers_;
  const bool halves_;
  std::unordered_map<const torch::jit::Node*, Element> elements_;
  std::unordered_map<const torch::jit::Node*, ChainProgram::Reduction> reductions_;
};

}  // namespace onnxtorch::chain
