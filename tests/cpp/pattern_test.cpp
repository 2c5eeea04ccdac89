// Patterns in graphs: where they are found, and what is put in their place.
#include "graph/pattern.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <limits>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/graph_location.h"
#include "parsed_graph.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Gives a program of this graph, with the text's names, whose last inputs are these constants.
Program program_of(const std::string& text, const std::vector<c10::IValue>& constants = {}) {
  Program program;
  program.graph = std::make_shared<jit::Graph>();
  std::unordered_map<std::string, jit::Value*> names;
  jit::parseIR(text, program.graph.get(), names);
  for (const auto& [name, value] : names) value->setDebugName(name);
  const size_t first_constant = program.graph->inputs().size() - constants.size();
  for (size_t i = 0; i < first_constant; ++i) program.graph_inputs.push_back({GraphInput::Role::Input, i});
  for (const c10::IValue& value : constants) {
    program.graph_inputs.push_back({GraphInput::Role::Constant, program.constants.size()});
    program.constants.push_back({"", value});
  }
  return program;
}

// Tells whether a rewrite found a place, and gives the kinds of the nodes that it left.
std::pair<bool, std::string> rewritten(const std::string& pattern, const Replace& replace, const std::string& text) {
  Program program = program_of(text);
  const bool is_changed = rewrite(program, pattern, replace);
  program.graph->lint();
  return {is_changed, testing::kinds_of(*program.graph->block())};
}

// Gives the graph's value for one of the pattern's, at each place where it fits.
std::vector<std::string> found(const std::string& pattern, const std::string& name, const std::string& text) {
  Program program = program_of(text);
  std::vector<std::string> names;
  for_each_place(program, pattern, [&](jit::Node*, const Found& place) { names.push_back(place[name]->debugName()); });
  return names;
}

const std::string kSilu = R"(
graph(%x):
  %gate : Tensor = aten::sigmoid(%x)
  %y : Tensor = aten::mul(%gate, %x)
  return (%y))";

jit::Value* silu(const Found& place, jit::Graph& graph) { return graph.insert(c10::aten::silu, {place["x"]}); }

TEST(Rewrite, ReplacesEachPlace) {
  EXPECT_THAT(rewritten(kSilu, silu, R"(
graph(%a : Tensor):
  %b : Tensor = aten::sigmoid(%a)
  %c : Tensor = aten::mul(%b, %a)
  %d : Tensor = aten::exp(%c)
  %e : Tensor = aten::sigmoid(%d)
  %f : Tensor = aten::mul(%e, %d)
  return (%f))"),
              Pair(true, "silu exp silu"));
}

TEST(Rewrite, LeavesAGraphWithoutThePattern) {
  EXPECT_THAT(rewritten(kSilu, silu, R"(
graph(%a : Tensor):
  %b : Tensor = aten::exp(%a)
  %dead : Tensor = aten::abs(%a)
  return (%b))"),
              Pair(false, "exp abs"));
  EXPECT_THAT(rewritten(kSilu, silu, R"(
graph(%a : Tensor, %other : Tensor):
  %b : Tensor = aten::sigmoid(%a)
  %c : Tensor = aten::mul(%b, %other)
  return (%c))"),
              Pair(false, "sigmoid mul"));
  EXPECT_THAT(rewritten(kSilu, silu, "graph(%a : Tensor):\n  return (%a)"), Pair(false, ""));
}

TEST(Rewrite, LeavesAPlaceWhoseInnerValueIsUsedElsewhere) {
  const std::string place = R"(
graph(%a : Tensor, %yes : bool):
  %b : Tensor = aten::sigmoid(%a)
  %c : Tensor = aten::mul(%b, %a)
)";
  EXPECT_THAT(rewritten(kSilu, silu, place + "  return (%c, %b)"), Pair(false, "sigmoid mul"));
  EXPECT_THAT(rewritten(kSilu, silu, place + "  %d : Tensor = aten::exp(%b)\n  return (%c, %d)"),
              Pair(false, "sigmoid mul exp"));
  EXPECT_THAT(rewritten(kSilu, silu, place + R"(
  %d : Tensor = prim::If(%yes)
    block0():
      -> (%b)
    block1():
      -> (%a)
  return (%c, %d))"),
              Pair(false, "sigmoid mul If"));
}

TEST(Rewrite, PutsTheReplacementWhereverTheResultWasUsed) {
  Program program = program_of(R"(
graph(%a : Tensor):
  %b : Tensor = aten::sigmoid(%a)
  %c : Tensor = aten::mul(%b, %a)
  %d : Tensor = aten::exp(%c)
  %e : Tensor = aten::mul(%d, %c)
  return (%c, %e))");
  EXPECT_TRUE(rewrite(program, kSilu, silu));
  const jit::Value* const made = program.graph->outputs()[0];
  EXPECT_EQ(made->node()->kind(), c10::aten::silu);
  EXPECT_EQ(made->uses().size(), 3U);
}

TEST(Rewrite, TakesAnInnerValueThatThePatternUsesTwice) {
  const std::string square = R"(
graph(%x):
  %e : Tensor = aten::exp(%x)
  %y : Tensor = aten::mul(%e, %e)
  return (%y))";
  const auto twice = [](const Found& place, jit::Graph& graph) { return graph.insert(c10::aten::relu, {place["x"]}); };
  EXPECT_THAT(rewritten(square, twice, R"(
graph(%a : Tensor):
  %b : Tensor = aten::exp(%a)
  %c : Tensor = aten::mul(%b, %b)
  return (%c))"),
              Pair(true, "relu"));
  EXPECT_THAT(rewritten(square, twice, R"(
graph(%a : Tensor):
  %b : Tensor = aten::exp(%a)
  %other : Tensor = aten::exp(%a)
  %c : Tensor = aten::mul(%b, %other)
  return (%c))"),
              Pair(false, "exp exp mul"));
}

TEST(Rewrite, LooksAtWhatTheReplacementsBeforeHaveLeft) {
  const std::string two = R"(
graph(%x):
  %r : Tensor = aten::relu(%x)
  %y : Tensor = aten::relu(%r)
  return (%y))";
  const auto one = [](const Found& place, jit::Graph& graph) { return graph.insert(c10::aten::relu, {place["x"]}); };
  EXPECT_THAT(rewritten(two, one, R"(
graph(%a : Tensor):
  %b : Tensor = aten::relu(%a)
  %c : Tensor = aten::relu(%b)
  %d : Tensor = aten::relu(%c)
  %e : Tensor = aten::relu(%d)
  return (%e))"),
              Pair(true, "relu"));
}

TEST(Rewrite, LeavesAPlaceThatIsNotReplaced) {
  const std::string text = R"(
graph(%a : Tensor, %b : Tensor):
  %c : Tensor = aten::sigmoid(%a)
  %d : Tensor = aten::mul(%c, %a)
  %e : Tensor = aten::sigmoid(%b)
  %f : Tensor = aten::mul(%e, %b)
  return (%d, %f))";
  const auto never = [](const Found&, jit::Graph&) -> jit::Value* { return nullptr; };
  EXPECT_THAT(rewritten(kSilu, never, text), Pair(false, "sigmoid mul sigmoid mul"));
  const auto of_b = [](const Found& place, jit::Graph& graph) -> jit::Value* {
    return place["x"]->debugName() == "b" ? silu(place, graph) : nullptr;
  };
  EXPECT_THAT(rewritten(kSilu, of_b, text), Pair(true, "sigmoid mul silu"));
}

TEST(Rewrite, KeepsTheTypeAndTheOnnxNodeOfTheResult) {
  Program program = program_of(R"(
graph(%a : Tensor):
  %b : Tensor = aten::sigmoid(%a)
  %c : Float(2, 3) = aten::mul(%b, %a)
  return (%c))");
  const c10::TypePtr type = program.graph->outputs()[0]->type();
  program.graph->outputs()[0]->node()->setSourceRange(location(7, {.op_type = "Mul", .name = "", .domain = ""}));
  EXPECT_TRUE(rewrite(program, kSilu, silu));
  const jit::Value* const made = program.graph->outputs()[0];
  EXPECT_EQ(made->node()->kind(), c10::aten::silu);
  EXPECT_EQ(*made->type(), *type);
  EXPECT_EQ(node_number(made->node()), 7U);
}

TEST(Rewrite, FindsAPlaceWithinABlock) {
  Program program = program_of(R"(
graph(%a : Tensor, %yes : bool):
  %y : Tensor = prim::If(%yes)
    block0():
      %b : Tensor = aten::sigmoid(%a)
      %c : Tensor = aten::mul(%b, %a)
      -> (%c)
    block1():
      -> (%a)
  return (%y))");
  EXPECT_TRUE(rewrite(program, kSilu, silu));
  program.graph->lint();
  EXPECT_EQ(testing::kinds_of(*program.graph->outputs()[0]->node()->blocks()[0]), "silu");
}

// The loop would compute again and again what the graph computes once.
TEST(Rewrite, LeavesAPlaceThatIsComputedPartlyOutsideOfItsBlock) {
  const std::string text = R"(
graph(%a : Tensor, %n : int, %yes : bool):
  %b : Tensor = aten::sigmoid(%a)
  %y : Tensor = prim::Loop(%n, %yes, %a)
    block0(%i : int, %before : Tensor):
      %c : Tensor = aten::mul(%b, %a)
      -> (%yes, %c)
  return (%y))";
  EXPECT_THAT(rewritten(kSilu, silu, text), Pair(false, "sigmoid Loop"));
  EXPECT_THAT(found(kSilu, "y", text), ElementsAre("c"));
}

TEST(ForEachPlace, VisitsAPlaceWhoseInnerValueIsUsedElsewhere) {
  const std::string text = R"(
graph(%a : Tensor):
  %b : Tensor = aten::sigmoid(%a)
  %c : Tensor = aten::mul(%b, %a)
  %d : Tensor = aten::mul(%b, %a)
  return (%b, %c, %d))";
  EXPECT_THAT(found(kSilu, "y", text), ElementsAre("c", "d"));
  EXPECT_THAT(found(kSilu, "gate", text), ElementsAre("b", "b"));
  EXPECT_THAT(found(kSilu, "x", text), ElementsAre("a", "a"));
}

TEST(ForEachPlace, TwoNamesMayStandForOneValue) {
  const std::string pattern = R"(
graph(%x, %z):
  %a : Tensor = aten::exp(%x)
  %b : Tensor = aten::exp(%z)
  %y : Tensor = aten::mul(%a, %b)
  return (%y))";
  const std::string text = R"(
graph(%a : Tensor):
  %b : Tensor = aten::exp(%a)
  %c : Tensor = aten::mul(%b, %b)
  return (%c))";
  EXPECT_THAT(found(pattern, "b", text), ElementsAre("b"));
  EXPECT_THAT(found(pattern, "z", text), ElementsAre("a"));
}

TEST(ForEachPlace, TakesOperandsInTheirOrder) {
  const std::string commuted = R"(
graph(%a : Tensor):
  %b : Tensor = aten::sigmoid(%a)
  %c : Tensor = aten::mul(%a, %b)
  return (%c))";
  EXPECT_THAT(found(kSilu, "y", commuted), IsEmpty());
  Program program = program_of(commuted);
  sort_operands(program);
  EXPECT_TRUE(rewrite(program, kSilu, silu));
}

// A pattern of a softmax over dimension 1, and a graph with another number or value there.
TEST(ForEachPlace, WantsConstantsWithTheSameValues) {
  const std::string pattern = R"(
graph(%x):
  %dim : int = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
  %y : Tensor = aten::softmax(%x, %dim, %none)
  return (%y))";
  const auto places = [&](const std::string& dim, const std::string& dtype) {
    return found(pattern, "y",
                 "graph(%a : Tensor, %n : int, %m : int?):\n" + dim + dtype +
                     "  %b : Tensor = aten::softmax(%a, %n1, %m1)\n  return (%b)");
  };
  const std::string one = "  %n1 : int = prim::Constant[value=1]()\n";
  const std::string none = "  %m1 : NoneType = prim::Constant()\n";
  EXPECT_THAT(places(one, none), ElementsAre("b"));
  EXPECT_THAT(places("  %n1 : int = prim::Constant[value=2]()\n", none), IsEmpty());
  EXPECT_THAT(places("  %n1 : float = prim::Constant[value=1.]()\n", none), IsEmpty());
  EXPECT_THAT(places("  %n1 : int = aten::neg(%n)\n", none), IsEmpty());
  EXPECT_THAT(places(one, "  %m1 : int = prim::Constant[value=6]()\n"), IsEmpty());
}

TEST(ForEachPlace, TellsTheResultsOfANodeApart) {
  const std::string pattern = R"(
graph(%x : Tensor, %dim : int, %keep : bool):
  %values : Tensor, %indices : Tensor = aten::max(%x, %dim, %keep)
  %y : Tensor = aten::neg(%indices)
  return (%y))";
  const std::string text = R"(
graph(%a : Tensor, %d : int, %k : bool):
  %v : Tensor, %i : Tensor = aten::max(%a, %d, %k)
  %b : Tensor = aten::neg(%v)
  %c : Tensor = aten::neg(%i)
  return (%b, %c))";
  EXPECT_THAT(found(pattern, "y", text), ElementsAre("c"));
  EXPECT_THAT(found(pattern, "values", text), ElementsAre("v"));
}

TEST(ForEachPlace, TellsOperatorsOfOneNameApartByTheirArguments) {
  const std::string pattern = "graph(%x, %dtype):\n  %y : Tensor = aten::sum(%x, %dtype)\n  return (%y)";
  EXPECT_THAT(found(pattern, "y", R"(
graph(%a : Tensor, %dims : int[], %keep : bool, %dtype : int?):
  %b : Tensor = aten::sum(%a, %dims, %keep, %dtype)
  %c : Tensor = aten::sum(%a, %dtype)
  return (%b, %c))"),
              ElementsAre("c"));
}

// Gives a graph that chooses between values which these lines compute.
std::string branches(const std::string& one, const std::string& other) {
  return "graph(%x : Tensor, %c : bool):\n  %y : Tensor = prim::If(%c)\n    block0():\n" + one + "    block1():\n" +
         other + "  return (%y)";
}

TEST(ForEachPlace, ComparesWhatBranchesCompute) {
  const std::string exp = "      %e : Tensor = aten::exp(%x)\n      -> (%e)\n";
  const std::string same = "      -> (%x)\n";
  const std::string pattern = branches(exp, same);
  EXPECT_THAT(found(pattern, "x", branches(exp, same)), ElementsAre("x"));
  EXPECT_THAT(found(pattern, "x", branches(same, exp)), IsEmpty());
  EXPECT_THAT(found(pattern, "x", branches(exp, exp)), IsEmpty());
  EXPECT_THAT(found(pattern, "x", branches("      %e : Tensor = aten::abs(%x)\n      -> (%e)\n", same)), IsEmpty());
  EXPECT_THAT(found(pattern, "x", branches("      %e : Tensor = aten::exp(%x)\n      -> (%x)\n", same)), IsEmpty());
  EXPECT_THAT(found(pattern, "x", branches("      %f : Tensor = aten::abs(%x)\n" + exp, same)), IsEmpty());
}

// Gives a graph of a loop with these lines, which give the next value of %before.
std::string loop(const std::string& steps) {
  return R"(
graph(%x : Tensor, %n : int):
  %yes : bool = prim::Constant[value=1]()
  %y : Tensor = prim::Loop(%n, %yes, %x)
    block0(%i : int, %before : Tensor):
)" + steps +
         R"(
      -> (%yes, %next)
  return (%y))";
}

TEST(ForEachPlace, ComparesWhatLoopsCompute) {
  const std::string pattern = loop("      %next : Tensor = aten::mul(%before, %x)");
  EXPECT_THAT(found(pattern, "x", pattern), ElementsAre("x"));
  EXPECT_THAT(found(pattern, "x", loop("      %next : Tensor = aten::mul(%x, %before)")), IsEmpty());
  EXPECT_THAT(found(pattern, "x", loop("      %next : Tensor = aten::mul(%before, %before)")), IsEmpty());
  const std::string of_before = loop("      %next : Tensor = aten::exp(%before)");
  EXPECT_THAT(found(of_before, "x", of_before), ElementsAre("x"));
  EXPECT_THAT(found(of_before, "x", loop("      %next : Tensor = aten::exp(%x)")), IsEmpty());
}

TEST(ForEachPlace, AConstantMayStandInAnotherBlockThanThePatterns) {
  const std::string pattern = loop(R"(
      %one : int = prim::Constant[value=1]()
      %next : Tensor = aten::add(%before, %x, %one))");
  EXPECT_THAT(found(pattern, "x", R"(
graph(%a : Tensor, %n : int):
  %alpha : int = prim::Constant[value=1]()
  %yes : bool = prim::Constant[value=1]()
  %y : Tensor = prim::Loop(%n, %yes, %a)
    block0(%i : int, %before : Tensor):
      %next : Tensor = aten::add(%before, %a, %alpha)
      -> (%yes, %next)
  return (%y))"),
              ElementsAre("a"));
}

// Visits the only place of a product, whose operands are a tensor of this type and a constant.
template <typename Visit>
void at_product(const std::string& type, const c10::IValue& factor, const Visit& visit) {
  Program program =
      program_of("graph(%a : " + type + ", %b):\n  %c : Tensor = aten::mul(%a, %b)\n  return (%c)", {factor});
  int places = 0;
  for_each_place(program, "graph(%x, %n):\n  %y : Tensor = aten::mul(%x, %n)\n  return (%y)",
                 [&](jit::Node*, const Found& place) {
                   ++places;
                   visit(place);
                 });
  EXPECT_EQ(places, 1);
}

TEST(Found, IsANumberAsFarAsFloatsTell) {
  const auto expect = [](const c10::IValue& value, double number, bool is) {
    at_product("Tensor", value, [&](const Found& place) { EXPECT_EQ(place.is("n", number), is) << value; });
  };
  expect(at::scalar_tensor(0.044715, at::kFloat), 0.044715, true);
  expect(at::scalar_tensor(0.0447, at::kFloat), 0.044715, false);
  expect(at::scalar_tensor(1e6, at::kFloat), 1e6 + 0.5, true);
  expect(at::scalar_tensor(0, at::kFloat), 0, true);
  expect(at::scalar_tensor(std::numeric_limits<double>::quiet_NaN(), at::kFloat), 0, false);
  expect(at::scalar_tensor(2, at::kLong), 2, true);
  expect(2, 2, true);
  expect(c10::IValue(), 0, false);
}

TEST(Found, IsNoNumberWhereAnArrayHoldsIt) {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{{1}, {1, 1}, {2}, {0}})
    at_product("Tensor", at::ones(sizes), [](const Found& place) { EXPECT_FALSE(place.is("n", 1)); });
  at_product("Tensor", 1, [](const Found& place) { EXPECT_FALSE(place.is("x", 1)); });
}

TEST(Found, KnowsTheLastDimension) {
  const auto expect = [](const std::string& type, const c10::IValue& dim, bool is) {
    at_product(type, dim, [&](const Found& place) { EXPECT_EQ(place.is_last("n", "x"), is) << type << dim; });
  };
  expect("Tensor", -1, true);
  expect("Tensor", 1, false);
  expect("Float(*, *)", 1, true);
  expect("Float(*, *)", -1, true);
  expect("Float(*, *)", 0, false);
  expect("Float(*, *)", -2, false);
  expect("Float(2)", 0, true);
  expect("Float(*, *)", c10::IValue(), false);
}

// Gives the operands of %y, which these lines compute from two inputs and the constant %w.
std::string operands(const std::string& steps) {
  Program program =
      program_of("graph(%a : Tensor, %b : Tensor, %w : Tensor):\n" + steps + "  return (%y)", {at::ones({})});
  sort_operands(program);
  program.graph->lint();
  const jit::Node* const node = program.graph->outputs()[0]->node();
  return node->input(0)->debugName() + " " + node->input(1)->debugName();
}

TEST(SortOperands, PutsTheOperandOfMoreStepsFirst) {
  const std::string one = "  %c : Tensor = aten::exp(%a)\n", two = one + "  %d : Tensor = aten::exp(%c)\n";
  EXPECT_EQ(operands(one + "  %y : Tensor = aten::mul(%b, %c)\n"), "c b");
  EXPECT_EQ(operands(one + "  %y : Tensor = aten::mul(%c, %b)\n"), "c b");
  EXPECT_EQ(operands(two + "  %y : Tensor = aten::mul(%c, %d)\n"), "d c");
  EXPECT_EQ(operands(two + "  %y : Tensor = aten::mul(%d, %c)\n"), "d c");
}

TEST(SortOperands, PutsAConstantLast) {
  EXPECT_EQ(operands("  %y : Tensor = aten::mul(%w, %a)\n"), "a w");
  EXPECT_EQ(operands("  %y : Tensor = aten::mul(%a, %w)\n"), "a w");
  EXPECT_EQ(operands("  %c : Tensor = aten::exp(%a)\n  %y : Tensor = aten::mul(%w, %c)\n"), "c w");
}

TEST(SortOperands, LeavesOperandsOfAsManySteps) {
  EXPECT_EQ(operands("  %y : Tensor = aten::mul(%a, %b)\n"), "a b");
  EXPECT_EQ(operands("  %y : Tensor = aten::mul(%b, %a)\n"), "b a");
}

TEST(SortOperands, LeavesWhatDoesNotCommute) {
  const std::string constants = R"(
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %c : Tensor = aten::exp(%a)
)";
  EXPECT_EQ(operands(constants + "  %y : Tensor = aten::add(%b, %c, %one)\n"), "c b");
  EXPECT_EQ(operands(constants + "  %y : Tensor = aten::add(%b, %c, %two)\n"), "b c");
  EXPECT_EQ(operands(constants + "  %y : Tensor = aten::sub(%b, %c, %one)\n"), "b c");
  EXPECT_EQ(operands(constants + "  %y : Tensor = aten::div(%b, %c)\n"), "b c");
}

TEST(SortOperands, GoesIntoBlocks) {
  Program program = program_of(R"(
graph(%a : Tensor, %yes : bool):
  %y : Tensor = prim::If(%yes)
    block0():
      %b : Tensor = aten::sigmoid(%a)
      %c : Tensor = aten::mul(%a, %b)
      -> (%c)
    block1():
      -> (%a)
  return (%y))");
  EXPECT_FALSE(rewrite(program, kSilu, silu));
  sort_operands(program);
  EXPECT_TRUE(rewrite(program, kSilu, silu));
}

}  // namespace
}  // namespace onnxtorch
