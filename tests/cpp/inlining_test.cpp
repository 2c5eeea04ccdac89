// What of a script enters the graph.
#include "translate/inlining.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "graph/writes.h"
#include "translate/scripts.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

size_t count(jit::Graph& graph, c10::Symbol kind) {
  return std::ranges::count(graph.nodes(), kind, [](const jit::Node* node) { return node->kind(); });
}

jit::Value* insert(jit::Graph& graph, const std::string& script, const std::vector<jit::Value*>& arguments,
                   Facts facts = {}) {
  return insert_script(graph, find_script(script), arguments, facts);
}

jit::Value* insert_activation(jit::Graph& graph, jit::Value* x, const std::string& name, jit::Value* clip) {
  jit::Value* const number = graph.insertConstant(1.0);
  return insert(graph, "activate", {x, graph.insertConstant(name), number, number, clip});
}

TEST(Inlining, TakesTheBranchThatAConstantDecides) {
  jit::Graph graph;
  jit::Value *const x = graph.addInput(), *const none = graph.insertConstant(c10::IValue());
  EXPECT_EQ(insert_activation(graph, x, "tanh", none)->node()->kind(), c10::aten::tanh);
  EXPECT_EQ(insert_activation(graph, x, "relu", none)->node()->kind(), c10::aten::relu);
  EXPECT_EQ(count(graph, c10::prim::If), 0U);
}

TEST(Inlining, TakesTheBranchThatPresenceDecides) {
  jit::Graph graph;
  jit::Value *const x = graph.addInput(), *const clip = graph.addInput();
  clip->setType(c10::FloatType::get());
  insert_activation(graph, x, "tanh", graph.insertConstant(c10::IValue()));
  EXPECT_EQ(count(graph, c10::aten::clamp), 0U);
  insert_activation(graph, x, "tanh", clip);
  EXPECT_EQ(count(graph, c10::aten::clamp), 1U);
  EXPECT_EQ(count(graph, c10::prim::If), 0U);
}

TEST(Inlining, TakesTheBranchThatAKnownRankDecides) {
  jit::Graph graph;
  jit::Value *const vector = graph.addInput(), *const rows = graph.addInput();
  Facts facts;
  facts.set_shapes(vector, c10::kFloat, std::vector<std::vector<int64_t>>(4, {5}));
  facts.set_shapes(rows, c10::kFloat, std::vector<std::vector<int64_t>>{{1, 5}, {2, 5}, {3, 5}});
  EXPECT_EQ(insert(graph, "rows_of", {vector}, facts)->node()->kind(), c10::aten::unsqueeze);
  EXPECT_EQ(insert(graph, "rows_of", {rows}, facts), rows);
}

TEST(Inlining, TakesNoSizesForKnownWhereTheScriptWritesToThem) {
  jit::CompilationUnit unit;
  unit.define(std::nullopt, R"(
def relu_of_vectors(x):
    sizes = x.size()
    sizes.append(1)
    if len(sizes) == 1:
        x = x.relu()
    return x
)",
              jit::nativeResolver(), nullptr);
  jit::GraphFunction& function = jit::toGraphFunction(unit.get_function({"relu_of_vectors"}));
  const bool writes = may_write(*function.graph()->block());
  jit::Graph graph;
  jit::Value* const x = graph.addInput();
  Facts facts;
  facts.set_shapes(x, c10::kFloat, std::vector<std::vector<int64_t>>(4, {5}));
  insert_script(graph, {&function, jit::Code(function.graph(), "relu_of_vectors"), true, writes}, {x}, facts);
  EXPECT_EQ(count(graph, c10::prim::If), 1U);
}

TEST(Inlining, KeepsBranchesThatARunDecides) {
  jit::Graph graph;
  insert(graph, "rows_of", {graph.addInput()});
  EXPECT_EQ(count(graph, c10::prim::If), 1U);
}

}  // namespace
}  // namespace onnxtorch
