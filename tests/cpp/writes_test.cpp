// Taking out nodes where some of them write.
#include "translate/writes.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <algorithm>
#include <string>

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

template <typename Simplify>
std::string kinds_after(const Simplify& simplify, const std::string& text) {
  auto graph = std::make_shared<jit::Graph>();
  jit::parseIR(text, graph.get());
  simplify(graph);
  graph->lint();
  std::string kinds;
  for (const jit::Node* node : graph->nodes())
    kinds += std::string(kinds.empty() ? "" : " ") + node->kind().toUnqualString();
  return kinds;
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
