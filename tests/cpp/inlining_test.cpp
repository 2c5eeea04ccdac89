// What of a script enters the graph.
#include "translate/inlining.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "translate/scripts.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

size_t count(jit::Graph& graph, c10::Symbol kind) {
  return std::ranges::count(graph.nodes(), kind, [](const jit::Node* node) { return node->kind(); });
}

jit::Value* insert(jit::Graph& graph, const std::string& script, const std::vector<jit::Value*>& arguments) {
  return insert_script(graph, *find_script(script).function->graph(), arguments);
}

TEST(Inlining, TakesTheBranchThatAConstantDecides) {
  jit::Graph graph;
  jit::Value* const scores = graph.addInput();
  EXPECT_EQ(insert(graph, "post_transform", {scores, graph.insertConstant("NONE")}), scores);
  EXPECT_EQ(insert(graph, "post_transform", {scores, graph.insertConstant("LOGISTIC")})->node()->kind(),
            c10::aten::sigmoid);
  EXPECT_EQ(count(graph, c10::prim::If), 0U);
}

TEST(Inlining, TakesTheBranchThatPresenceDecides) {
  jit::Graph graph;
  jit::Value* const x = graph.addInput();
  jit::Value* const low = graph.insertConstant(0);
  insert(graph, "saturated", {x, graph.insertConstant(c10::IValue()), low, low});
  EXPECT_EQ(count(graph, c10::aten::add), 0U);
  insert(graph, "saturated", {x, x, low, low});
  EXPECT_EQ(count(graph, c10::aten::add), 1U);
  EXPECT_EQ(count(graph, c10::prim::If), 0U);
}

TEST(Inlining, KeepsBranchesThatARunDecides) {
  jit::Graph graph;
  insert(graph, "rows_of", {graph.addInput()});
  EXPECT_EQ(count(graph, c10::prim::If), 1U);
}

}  // namespace
}  // namespace onnxtorch
