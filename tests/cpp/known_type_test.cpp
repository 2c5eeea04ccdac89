// Element types that follow from operators, branches and loops.
#include "graph/known_type.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <string>
#include <vector>

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using Types = std::vector<std::optional<c10::ScalarType>>;

constexpr auto kUnknown = std::nullopt;

// Gives the types of the graph's outputs, where its inputs are of these.
Types outputs_of(const std::string& text, const Types& inputs) {
  jit::Graph graph;
  jit::parseIR(text, &graph);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i]) graph.inputs()[i]->setType(c10::TensorType::get()->withScalarType(inputs[i]));
  }
  infer_types(graph.block());
  graph.lint();
  Types types;
  for (const jit::Value* output : graph.outputs()) types.push_back(type_of(output));
  return types;
}

constexpr auto kOperators = R"(
graph(%a : Tensor, %b : Tensor):
  %one : int = prim::Constant[value=1]()
  %sum : Tensor = aten::add(%a, %b, %one)
  %larger : Tensor = aten::gt(%a, %b)
  %chosen : Tensor = aten::where(%larger, %a, %b)
  %flat : Tensor = aten::flatten(%b, %one, %one)
  return (%sum, %larger, %chosen, %flat))";

TEST(InferTypes, OfFloatsThatAreAlike) {
  EXPECT_EQ(outputs_of(kOperators, {c10::kHalf, c10::kHalf}), Types({c10::kHalf, c10::kBool, c10::kHalf, c10::kHalf}));
}

TEST(InferTypes, FloatsSayWhatNumbersBesideThemBecome) {
  EXPECT_EQ(outputs_of(kOperators, {c10::kFloat, c10::kLong}),
            Types({c10::kFloat, c10::kBool, c10::kFloat, c10::kLong}));
}

TEST(InferTypes, NotWhereDimensionsDecide) {
  EXPECT_EQ(outputs_of(kOperators, {c10::kFloat, c10::kDouble}), Types({kUnknown, c10::kBool, kUnknown, c10::kDouble}));
}

TEST(InferTypes, NotOfWhatIsUnknown) {
  EXPECT_EQ(outputs_of(kOperators, {c10::kFloat, kUnknown}), Types({kUnknown, c10::kBool, kUnknown, kUnknown}));
}

TEST(InferTypes, TheTypeThatIsNamed) {
  EXPECT_EQ(outputs_of(R"(
graph(%x : Tensor):
  %double : int = prim::Constant[value=7]()
  %no : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %cast : Tensor = aten::to(%x, %double, %no, %no, %none)
  return (%cast))",
                       {c10::kFloat}),
            Types({c10::kDouble}));
}

TEST(InferTypes, OfBranchesThatAgree) {
  EXPECT_EQ(outputs_of(R"(
graph(%a : Tensor, %b : Tensor, %c : bool):
  %same : Tensor, %other : Tensor = prim::If(%c)
    block0():
      %r : Tensor = aten::relu(%a)
      -> (%r, %a)
    block1():
      -> (%a, %b)
  return (%same, %other))",
                       {c10::kFloat, c10::kDouble}),
            Types({c10::kFloat, kUnknown}));
}

// One value becomes a double, and another that is carried beside it depends on it.
TEST(InferTypes, OfWhatALoopGivesAgain) {
  EXPECT_EQ(outputs_of(R"(
graph(%x : Tensor, %n : int):
  %yes : bool = prim::Constant[value=1]()
  %one : int = prim::Constant[value=1]()
  %double : int = prim::Constant[value=7]()
  %no : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %same : Tensor, %changed : Tensor, %follows : Tensor = prim::Loop(%n, %yes, %x, %x, %x)
    block0(%i : int, %s : Tensor, %c : Tensor, %f : Tensor):
      %next : Tensor, %nested : Tensor = prim::Loop(%n, %yes, %s, %c)
        block0(%j : int, %t : Tensor, %d : Tensor):
          %u : Tensor = aten::tanh(%t)
          %e : Tensor = aten::tanh(%d)
          -> (%yes, %u, %e)
      %wide : Tensor = aten::to(%nested, %double, %no, %no, %none)
      %sum : Tensor = aten::add(%f, %c, %one)
      -> (%yes, %next, %wide, %sum)
  return (%same, %changed, %follows))",
                       {c10::kFloat}),
            Types({c10::kFloat, kUnknown, kUnknown}));
}

TEST(InferTypes, NotOfListsThatAreAppendedTo) {
  constexpr auto kStacked = R"(
graph(%x : Tensor, %y : Tensor):
  %zero : int = prim::Constant[value=0]()
  %list : Tensor[] = prim::ListConstruct(%x)
  %more : Tensor[] = aten::append(%list, %y)
  %all : Tensor = aten::stack(%list, %zero)
  %pair : Tensor[] = prim::ListConstruct(%x, %y)
  %both : Tensor = aten::cat(%pair, %zero)
  return (%all, %both))";
  EXPECT_EQ(outputs_of(kStacked, {c10::kFloat, c10::kFloat}), Types({kUnknown, c10::kFloat}));
}

}  // namespace
}  // namespace onnxtorch
