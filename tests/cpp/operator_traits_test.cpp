// The table of operators' traits.
#include "graph/operator_traits.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// A name that no operator has would be of no use, whoever asks.
TEST(OperatorTraits, ThereAreTheOperators) {
  for (const Trait trait : {Trait::Arranges, Trait::Product, Trait::SizedByData, Trait::ReadsForm, Trait::ReadsKind}) {
    for (const c10::Symbol op : operators_with(trait)) {
      const bool is_packed = std::string_view(op.toQualString()).starts_with("onnx_torch::packed");  // by a pass
      EXPECT_TRUE(is_packed || !jit::getAllOperatorsFor(op).empty()) << op.toQualString();
    }
  }
}

TEST(OperatorTraits, WhatAKindDecidesAFormDecides) {
  jit::Graph graph;
  const std::vector<c10::Symbol> of_kind = operators_with(Trait::ReadsKind);
  EXPECT_EQ(of_kind.size(), 4);
  for (const c10::Symbol op : of_kind) EXPECT_TRUE(has(graph.create(op), Trait::ReadsForm)) << op.toQualString();
}

// The length of a tensor is a size, which its elements may decide.
TEST(OperatorTraits, ALengthIsAFormAndNoKind) {
  jit::Graph graph;
  const jit::Node* const length = graph.create(c10::aten::len);
  EXPECT_TRUE(has(length, Trait::ReadsForm));
  EXPECT_FALSE(has(length, Trait::ReadsKind));
}

TEST(OperatorTraits, NamesEachOperatorOfATrait) {
  const std::vector<c10::Symbol> sized_by_data = operators_with(Trait::SizedByData);
  EXPECT_EQ(std::ranges::count(sized_by_data, c10::aten::nonzero), 1);
  jit::Graph graph;
  for (const c10::Symbol op : sized_by_data) EXPECT_TRUE(has(graph.create(op), Trait::SizedByData));
  EXPECT_FALSE(has(graph.create(c10::aten::add), Trait::SizedByData));
}

}  // namespace
}  // namespace onnxtorch
