// The removal of nodes where some of them write.
#include "graph/writes.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <string>

#include "parsed_graph.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

template <typename Simplify>
std::string kinds_after(const Simplify& simplify, const std::string& text) {
  auto graph = testing::parsed(text);
  simplify(graph);
  graph->lint();
  return testing::kinds_of(*graph->block());
}

TEST(EliminateDeadCode, TakesOutWhatOnlyTheDeadNeed) {
  EXPECT_EQ(kinds_after(eliminate_dead_code, R"(
graph(%x : Tensor):
  %a : Tensor = aten::exp(%x)
  %b : Tensor = aten::relu(%a)
  %c : Tensor = aten::abs(%b)
  return (%a))"),
            "exp");
}

TEST(EliminateDeadCode, KeepsAWriteToWhatIsRead) {
  EXPECT_EQ(kinds_after(eliminate_dead_code, R"(
graph(%x : Tensor):
  %a : Tensor = aten::exp(%x)
  %b : Tensor = aten::relu_(%a)
  %c : Tensor = aten::abs(%b)
  return (%a))"),
            "exp relu_");
}

TEST(EliminateDeadCode, TakesOutAWriteToWhatNobodyReads) {
  EXPECT_EQ(kinds_after(eliminate_dead_code, R"(
graph(%x : Tensor):
  %a : Tensor = aten::exp(%x)
  %b : Tensor = aten::relu_(%a)
  %c : Tensor = aten::abs(%x)
  return (%c))"),
            "abs");
}

TEST(EliminateDeadCode, TakesOutUnusedResultsOfBranches) {
  EXPECT_EQ(kinds_after(eliminate_dead_code, R"(
graph(%x : Tensor, %c : bool):
  %e : Tensor = aten::exp(%x)
  %a : Tensor, %b : Tensor = prim::If(%c)
    block0():
      -> (%x, %e)
    block1():
      -> (%x, %x)
  return (%a))"),
            "If");
}

// Gives the kinds of the nodes that are left where a loop appends to a list, which the graph reads or not.
std::string kinds_after_a_loop(const std::string& result) {
  return kinds_after(eliminate_dead_code, R"(
graph(%x : Tensor, %n : int):
  %yes : bool = prim::Constant[value=1]()
  %list : int[] = prim::ListConstruct()
  prim::Loop(%n, %yes)
    block0(%i : int):
      %same : int[] = aten::append(%list, %i)
      -> (%yes)
  %y : Tensor = aten::reshape(%x, %list)
  return (%)" + result + ")");
}

TEST(EliminateDeadCode, KeepsALoopThatAppendsToAListThatIsRead) {
  EXPECT_EQ(kinds_after_a_loop("y"), "Constant ListConstruct Loop reshape");
}

TEST(EliminateDeadCode, TakesOutALoopThatAppendsToAListThatNobodyReads) { EXPECT_EQ(kinds_after_a_loop("x"), ""); }

TEST(EliminateDeadCode, TakesOutWhatABranchComputesForNothing) {
  EXPECT_EQ(kinds_after(eliminate_dead_code, R"(
graph(%x : Tensor, %c : bool):
  %a : Tensor = prim::If(%c)
    block0():
      %e : Tensor = aten::exp(%x)
      %f : Tensor = aten::abs(%e)
      -> (%e)
    block1():
      -> (%x)
  %b : Tensor = prim::If(%c)
    block0():
      %g : Tensor = aten::exp(%x)
      -> (%g)
    block1():
      -> (%x)
  return (%a))"),
            "If");
}

TEST(EliminateDeadCode, KeepsABranchThatMayFail) {
  EXPECT_EQ(kinds_after(eliminate_dead_code, R"(
graph(%x : Tensor, %c : bool, %text : str, %none : NoneType):
  prim::If(%c)
    block0():
      prim::RaiseException(%text, %none)
      -> ()
    block1():
      -> ()
  return (%x))"),
            "If");
}

// Tells whether something writes to what the node of a kind reads or returns.
bool has_writers(const std::string& kind, const std::string& text) {
  const auto graph = testing::parsed(text);
  const Writers writers(graph);
  return std::ranges::any_of(graph->nodes(), [&](const jit::Node* node) {
    return node->kind().toUnqualString() == kind && writers.has_writers(node);
  });
}

TEST(Writers, TellOfTensors) {
  const std::string text = R"(
graph(%x : Tensor, %y : Tensor):
  %a : Tensor = aten::exp(%x)
  %b : Tensor = aten::t(%a)
  %c : Tensor = aten::relu_(%b)
  %d : Tensor = aten::sin(%y)
  return (%a, %d))";
  EXPECT_TRUE(has_writers("exp", text));
  EXPECT_FALSE(has_writers("sin", text));
}

TEST(Writers, TellAListThatIsWrittenToFromTensorsAndOtherLists) {
  const std::string text = R"(
graph(%x : Tensor, %n : int):
  %list : int[] = prim::ListConstruct(%n)
  %other : int[] = prim::ListConstruct(%n)
  %yes : bool = prim::Constant[value=1]()
  %either : int[] = prim::If(%yes)
    block0():
      -> (%list)
    block1():
      -> (%list)
  %same : int[] = aten::append(%either, %n)
  %a : Tensor = aten::exp(%x)
  %b : Tensor = aten::reshape(%x, %list)
  %c : Tensor = aten::expand(%x, %other, %yes)
  return (%a, %b, %c))";
  EXPECT_FALSE(has_writers("exp", text));
  EXPECT_TRUE(has_writers("reshape", text));
  EXPECT_FALSE(has_writers("expand", text));
}

TEST(ShareEqualNodes, LetsOneStandForAll) {
  EXPECT_EQ(kinds_after(share_equal_nodes, R"(
graph(%x : Tensor, %y : Tensor):
  %a : Tensor = aten::exp(%x)
  %b : Tensor = aten::exp(%x)
  %c : Tensor = aten::relu(%a)
  %d : Tensor = aten::relu(%b)
  %e : Tensor = aten::relu(%y)
  return (%c, %d, %e))"),
            "exp relu relu");
}

TEST(ShareEqualNodes, KeepsApartWhatIsReadBeforeAndAfterAWrite) {
  EXPECT_EQ(kinds_after(share_equal_nodes, R"(
graph(%x : Tensor):
  %a : Tensor = aten::exp(%x)
  %b : Tensor = aten::abs(%a)
  %c : Tensor = aten::relu_(%a)
  %d : Tensor = aten::abs(%a)
  return (%b, %d))"),
            "exp abs relu_ abs");
}

TEST(ShareEqualNodes, KeepsRandomNumbersApart) {
  const std::string text = R"(
graph(%x : Tensor):
  %n : NoneType = prim::Constant()
  %a : Tensor = aten::bernoulli(%x, %n)
  %b : Tensor = aten::bernoulli(%x, %n)
  return (%a, %b))";
  EXPECT_EQ(kinds_after(share_equal_nodes, text), "Constant bernoulli bernoulli");
}

}  // namespace
}  // namespace onnxtorch
