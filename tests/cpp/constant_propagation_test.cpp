// The constant propagation, beside TorchScript's own.
#include "graph/constant_propagation.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/passes/constant_propagation.h>

#include <string>

#include "parsed_graph.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

using testing::parsed;

std::string propagated(const std::string& text) {
  const auto graph = parsed(text);
  propagate_constants(graph);
  graph->lint();
  return graph->toString(/*print_source_locations=*/false);
}

// Gives what TorchScript's own pass makes of the graph.
std::string expected(const std::string& text) {
  auto graph = parsed(text);
  jit::ConstantPropagation(graph);
  return graph->toString(/*print_source_locations=*/false);
}

void expect_no(const char* word, const std::string& text) { EXPECT_EQ(text.find(word), std::string::npos) << text; }

void expect_some(const char* word, const std::string& text) { EXPECT_NE(text.find(word), std::string::npos) << text; }

// Counts the results that the branch or loop of the graph has then.
size_t results_of(c10::Symbol kind, const std::string& text) {
  const auto graph = parsed(text);
  propagate_constants(graph);
  graph->lint();
  for (const jit::Node* node : graph->nodes()) {
    if (node->kind() == kind) return node->outputs().size();
  }
  ADD_FAILURE() << "there is none in " << graph->toString();
  return 0;
}

TEST(ConstantPropagation, ComputesWhatFollowsFromConstants) {
  const std::string text = R"IR(
    graph(%x : Tensor):
      %two : int = prim::Constant[value=2]()
      %three : int = prim::Constant[value=3]()
      %six : int = aten::mul(%two, %three)
      %sizes : int[] = prim::ListConstruct(%six, %two)
      %y : Tensor = aten::reshape(%x, %sizes)
      return (%y))IR";
  EXPECT_EQ(propagated(text), expected(text));
  expect_no("aten::mul", propagated(text));
  expect_some("[6, 2]", propagated(text));
}

TEST(ConstantPropagation, LeavesListsThatAreAppendedTo) {
  const std::string text = R"IR(
    graph(%x : Tensor, %n : int):
      %two : int = prim::Constant[value=2]()
      %sizes : int[] = prim::ListConstruct(%two)
      %same : int[] = aten::append(%sizes, %n)
      %count : int = aten::len(%sizes)
      %y : Tensor = aten::reshape(%x, %sizes)
      %z : Tensor = aten::mul(%y, %count)
      return (%z))IR";
  EXPECT_EQ(propagated(text), expected(text));
  expect_some("prim::ListConstruct", propagated(text));
}

TEST(ConstantPropagation, TakesBranchesThatAreDecided) {
  const std::string text = R"IR(
    graph(%x : Tensor):
      %two : int = prim::Constant[value=2]()
      %three : int = prim::Constant[value=3]()
      %less : bool = aten::lt(%two, %three)
      %y : Tensor = prim::If(%less)
        block0():
          %five : int = aten::add(%two, %three)
          %a : Tensor = aten::mul(%x, %five)
          -> (%a)
        block1():
          %b : Tensor = aten::neg(%x)
          -> (%b)
      return (%y))IR";
  EXPECT_EQ(propagated(text), expected(text));
  expect_no("prim::If", propagated(text));
  expect_no("aten::add", propagated(text));
}

TEST(ConstantPropagation, GivesNoResultOfBranchesThatBothGive) {
  const std::string text = R"IR(
    graph(%x : Tensor, %which : bool):
      %y : Tensor, %same : int, %alike : Tensor, %other : int = prim::If(%which)
        block0():
          %a : Tensor = aten::neg(%x)
          %seven : int = prim::Constant[value=7]()
          %one : int = prim::Constant[value=1]()
          -> (%a, %seven, %x, %one)
        block1():
          %b : Tensor = aten::abs(%x)
          %again : int = prim::Constant[value=7]()
          %two : int = prim::Constant[value=2]()
          -> (%b, %again, %x, %two)
      %z : Tensor = aten::mul(%y, %same)
      %v : Tensor = aten::mul(%z, %other)
      %w : Tensor = aten::mul(%v, %alike)
      return (%w))IR";
  EXPECT_EQ(results_of(c10::prim::If, text), 2U);
}

TEST(ConstantPropagation, LeavesAConstantWhereOthersReadIt) {
  const std::string text = R"IR(
    graph(%x : Tensor, %which : bool):
      %seven : int = prim::Constant[value=7]()
      %a : Tensor = aten::mul(%x, %seven)
      %y : Tensor, %same : int = prim::If(%which)
        block0():
          %b : Tensor = aten::neg(%a)
          -> (%b, %seven)
        block1():
          %again : int = prim::Constant[value=7]()
          -> (%a, %again)
      %z : Tensor = aten::mul(%y, %same)
      return (%z))IR";
  EXPECT_EQ(results_of(c10::prim::If, text), 1U);
}

TEST(ConstantPropagation, LeavesOutLoopsThatNeverRun) {
  const std::string text = R"IR(
    graph(%x : Tensor):
      %none : int = prim::Constant[value=0]()
      %yes : bool = prim::Constant[value=1]()
      %y : Tensor = prim::Loop(%none, %yes, %x)
        block0(%i : int, %a : Tensor):
          %b : Tensor = aten::neg(%a)
          -> (%yes, %b)
      return (%y))IR";
  EXPECT_EQ(propagated(text), expected(text));
  expect_no("prim::Loop", propagated(text));
}

TEST(ConstantPropagation, CarriesNothingThatNoIterationChanges) {
  const std::string text = R"IR(
    graph(%x : Tensor, %n : int):
      %two : int = prim::Constant[value=2]()
      %three : int = prim::Constant[value=3]()
      %yes : bool = prim::Constant[value=1]()
      %y : Tensor, %k : int = prim::Loop(%n, %yes, %x, %two)
        block0(%i : int, %a : Tensor, %k.1 : int):
          %six : int = aten::mul(%two, %three)
          %b : Tensor = aten::mul(%a, %six)
          -> (%yes, %b, %k.1)
      %z : Tensor = aten::mul(%y, %k)
      return (%z))IR";
  EXPECT_EQ(propagated(text), expected(text));
  EXPECT_EQ(results_of(c10::prim::Loop, text), 1U);
  expect_some("value=6", propagated(text));
}

TEST(ConstantPropagation, LeavesWhatIsRandomAndWhatHasAnEffect) {
  const std::string text = R"IR(
    graph(%wrong : str):
      %two : int = prim::Constant[value=2]()
      %none : NoneType = prim::Constant()
      %sizes : int[] = prim::ListConstruct(%two)
      %y : Tensor = aten::rand(%sizes, %none, %none, %none, %none)
      prim::RaiseException(%wrong, %none)
      return (%y))IR";
  EXPECT_EQ(propagated(text), expected(text));
  expect_some("aten::rand", propagated(text));
  expect_some("prim::RaiseException", propagated(text));
}

}  // namespace
}  // namespace onnxtorch
