// Tests of what of a script enters the graph.
#include "translate/inlining.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <memory>
#include <string>

#include "translate/compiled_scripts.h"
#include "translate/scripts.h"

namespace onnxtorch {
namespace {

const std::vector<int64_t> kAlways5(Facts::trial_sizes(0).size(), 5);

namespace jit = torch::jit;

size_t count(jit::Graph& graph, c10::Symbol kind) {
  return std::ranges::count(graph.nodes(), kind, [](const jit::Node* node) { return node->kind(); });
}

jit::Value* insert(jit::Graph& graph, const std::string& script, const std::vector<jit::Value*>& arguments,
                   Facts facts = {}) {
  return insert_script(graph, find_script(script), arguments, facts).at(0);
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
  facts.set_sizes(vector, c10::kFloat, std::vector<std::vector<int64_t>>{kAlways5});
  facts.set_sizes(rows, c10::kFloat, std::vector<std::vector<int64_t>>{Facts::trial_sizes(0), kAlways5});
  EXPECT_EQ(insert(graph, "rows_of", {vector}, facts)->node()->kind(), c10::aten::unsqueeze);
  EXPECT_EQ(insert(graph, "rows_of", {rows}, facts), rows);
}

TEST(Inlining, TakesTheBranchThatAKnownNumberOfElementsDecides) {
  jit::Graph graph;
  jit::Value *const rows = graph.addInput(), *const open = graph.addInput();
  Facts facts;
  facts.set_sizes(rows, c10::kFloat, std::vector<std::vector<int64_t>>{kAlways5, kAlways5});
  facts.set_sizes(open, c10::kFloat, std::vector<std::vector<int64_t>>{Facts::trial_sizes(0), kAlways5});
  jit::Value* const last = graph.insertConstant(-1);
  insert(graph, "hardmax", {rows, last}, facts);
  EXPECT_EQ(count(graph, c10::prim::If), 0U);
  insert(graph, "hardmax", {open, last}, facts);
  EXPECT_EQ(count(graph, c10::prim::If), 1U);
}

// Gives what of a function of TorchScript enters a graph whose input is a vector of 5 elements, and a bool.
std::shared_ptr<jit::Graph> inlined(const std::string& parameters, const std::string& body) {
  jit::CompilationUnit unit;
  unit.define(std::nullopt, "def inlined(" + parameters + "):\n" + body, jit::nativeResolver(), nullptr);
  jit::GraphFunction& function = jit::toGraphFunction(unit.get_function({"inlined"}));
  auto graph = std::make_shared<jit::Graph>();
  Facts facts;
  std::vector<jit::Value*> arguments;
  for (const jit::Value* parameter : function.graph()->inputs()) {
    arguments.push_back(graph->addInput()->setType(parameter->type()));
  }
  facts.set_sizes(arguments[0], c10::kFloat, std::vector<std::vector<int64_t>>{kAlways5});
  const CompiledScript compiled{.name = "inlined", .schema = "inlined(Tensor x) -> Tensor", .graph = {}};
  const Script script(compiled, nullptr, function.graph());
  graph->registerOutput(insert_script(*graph, script, arguments, facts).at(0));
  return graph;
}

at::Tensor result(const std::shared_ptr<jit::Graph>& graph, jit::Stack inputs) {
  jit::InterpreterState(jit::Code(graph, "inlined")).run(inputs);
  return inputs.at(0).toTensor();
}

TEST(Inlining, FollowsTheListsThatAScriptChanges) {
  const auto graph = inlined("x", R"(
    sizes = x.size()
    sizes.append(7)
    sizes[0] = len(sizes)
    return x.new_zeros(sizes)
)");
  EXPECT_EQ(count(*graph, c10::aten::append) + count(*graph, c10::aten::_set_item), 0U);
  const auto sizes = result(graph, {at::ones({5})}).sizes().vec();
  EXPECT_EQ(sizes, std::vector<int64_t>({2, 7}));
}

TEST(Inlining, UnrollsLoopsThatAreKnownToGoRoundAFewTimes) {
  const auto graph = inlined("x", R"(
    found = [0.0]
    for i, size in enumerate(x.size()):
        for k in range(3):
            found.append(1.0 * size + k)
            if k == 1:
                x = x.relu()
    return x + found[2]
)");
  EXPECT_EQ(count(*graph, c10::prim::Loop) + count(*graph, c10::prim::If), 0U);
  EXPECT_EQ(count(*graph, c10::aten::relu), 1U);
  EXPECT_TRUE(at::equal(result(graph, {at::ones({5})}), at::full({5}, 7.0)));
}

TEST(Inlining, DoesNotFollowAListThatABranchChanges) {
  const auto graph = inlined("x, longer: bool", R"(
    sizes = [5]
    if longer:
        sizes.append(1)
    if len(sizes) == 1:
        x = x.relu()
    return x.reshape(sizes)
)");
  EXPECT_EQ(count(*graph, c10::prim::If), 2U);
  for (const bool longer : {false, true}) {
    const at::Tensor found = result(graph, {-at::ones({5}), longer});
    EXPECT_EQ(found.dim(), longer ? 2 : 1);
    EXPECT_TRUE(at::equal(found.sum(), at::scalar_tensor(longer ? -5.0F : 0.0F)));
  }
}

TEST(Inlining, TakesNoLengthForKnownOfAListThatHasTwoNames) {
  const auto graph = inlined("x, same: bool", R"(
    sizes = x.size()
    others = x.size()
    if same:
        others = sizes
    others.append(1)
    if len(sizes) == 1:
        x = x.relu()
    return x
)");
  EXPECT_EQ(count(*graph, c10::prim::If), 2U);
  for (const bool same : {false, true}) {
    const at::Tensor found = result(graph, {-at::ones({5}), same});
    EXPECT_TRUE(at::equal(found, at::full({5}, same ? -1.0F : 0.0F)));
  }
}

TEST(Inlining, KnowsSizesWithinABranchThatARunDecides) {
  const auto graph = inlined("x, longer: bool", R"(
    if longer:
        for size in x.size():
            if size == 5:
                x = x.relu()
    return x
)");
  EXPECT_EQ(graph->toString().find("prim::Loop"), std::string::npos);
  EXPECT_EQ(graph->toString().find("aten::eq"), std::string::npos);
  EXPECT_TRUE(at::equal(result(graph, {-at::ones({5}), true}), at::zeros({5})));
}

TEST(Inlining, KeepsCallsOfKeptScriptsWhereItIsToldTo) {
  const auto resampled = c10::Symbol::fromQualString("onnx_torch::resampled");
  for (const bool keeps : {false, true}) {
    jit::Graph graph;
    jit::Value *const x = graph.addInput(), *const indices = graph.addInput(), *const taps = graph.addInput();
    jit::Value* const axes = graph.insertConstant(std::vector<int64_t>{1});
    const auto list = [&](jit::Value* item) {
      return graph.insertNode(graph.createList(c10::TensorType::get(), {item}))->output();
    };
    const std::vector<jit::Value*> arguments{x, axes, list(indices), list(taps), graph.insertConstant(c10::kFloat)};
    insert_script(graph, find_script("resize_weighted"), arguments, *std::make_unique<Facts>(),
                  keeps ? [](c10::Symbol) { return true; } : KeptScripts());
    const std::string text = graph.toString();
    EXPECT_EQ(text.find("onnx_torch::resampled") != std::string::npos, keeps);
    EXPECT_EQ(text.find("aten::index_select") != std::string::npos, !keeps);
  }
  EXPECT_EQ(kept_script(resampled), &find_script("resampled"));
  EXPECT_EQ(kept_script(c10::Symbol::fromQualString("onnx_torch::resize_weighted")), nullptr);
  EXPECT_EQ(kept_script(c10::Symbol::fromQualString("aten::resampled")), nullptr);
}

TEST(Inlining, GivesEachResultOfATuple) {
  jit::Graph graph;
  Facts facts;
  EXPECT_EQ(insert_script(graph, find_script("dynamic_quantize_linear"), {graph.addInput()}, facts).size(), 3U);
}

TEST(KeptScripts, AreOperatorsThatRunThem) {
  find_script("dynamic_quantize_linear");
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("onnx_torch::dynamic_quantize_linear", "");
  jit::Stack stack{at::tensor({99}), at::tensor({-1.0F, 4.1F})};  // what lies below stays
  op.callBoxed(stack);
  ASSERT_EQ(stack.size(), 4U);
  EXPECT_EQ(stack[0].toTensor().item<int64_t>(), 99);
  EXPECT_TRUE(at::equal(stack[1].toTensor(), at::tensor({0, 255}, at::kByte)));
  EXPECT_FLOAT_EQ(stack[2].toTensor().item<float>(), 0.02F);
  EXPECT_EQ(stack[3].toTensor().item<int64_t>(), 50);
}

TEST(Inlining, KeepsBranchesThatARunDecides) {
  jit::Graph graph;
  insert(graph, "rows_of", {graph.addInput()});
  EXPECT_EQ(count(graph, c10::prim::If), 1U);
}

}  // namespace
}  // namespace onnxtorch
