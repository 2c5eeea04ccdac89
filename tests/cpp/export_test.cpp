#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "export/script_module.h"
#include "model_builder.h"
#include "temporary_folder.h"
#include "translate/translate.h"

namespace onnxtorch::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr auto kFloat = onnx::TensorProto::FLOAT;

void floats(onnx::GraphProto& graph, const std::string& name, const std::vector<float>& values) {
  auto* tensor = graph.add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(kFloat);
  tensor->add_dims(static_cast<int64_t>(values.size()));
  for (const float value : values) tensor->add_float_data(value);
}

Program trainable(const ModelBuilder& model) {
  TranslateOptions options;
  options.trainable = true;
  return translate(model.file(), options);
}

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  std::string text;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get())) text += static_cast<char>(c);
  return text;
}

// Makes a model that doubles x until its sum is 20 or more, and then, where that is above 40, subtracts w.
ModelBuilder doubling_model() {
  ModelBuilder model;
  model.input("x", kFloat, {3}).output("y");
  auto& proto = model.file()->proto;
  floats(*proto.mutable_graph(), "two", {2});
  floats(*proto.mutable_graph(), "twenty", {20});
  floats(*proto.mutable_graph(), "forty", {40});
  floats(*proto.mutable_graph(), "layer.w", {1, 1, 1});
  model.ints("steps", {10}, {});
  set_int(model.node("ReduceSum", {"x"}, {"sum0"}), "keepdims", 0);
  model.node("Less", {"sum0", "twenty"}, {"small0"});
  model.ints("scalar", {}, {0});
  model.node("Reshape", {"small0", "scalar"}, {"go0"});
  auto& loop = model.node("Loop", {"steps", "go0", "x"}, {"grown"}, "loop");
  add_graph(loop, "body")
      .input("i", onnx::TensorProto::INT64, {})
      .input("go", onnx::TensorProto::BOOL, {})
      .input("v", kFloat, {3})
      .output("more")
      .output("doubled");
  GraphBuilder body(*loop.mutable_attribute(0)->mutable_g());
  body.node("Mul", {"v", "two"}, {"doubled"});
  set_int(body.node("ReduceSum", {"doubled"}, {"sum"}), "keepdims", 0);
  body.node("Less", {"sum", "twenty"}, {"small"});
  body.node("Reshape", {"small", "scalar"}, {"more"});
  set_int(model.node("ReduceSum", {"grown"}, {"total"}), "keepdims", 0);
  model.node("Greater", {"total", "forty"}, {"large"});
  model.node("Reshape", {"large", "scalar"}, {"is_large"});
  auto& choice = model.node("If", {"is_large"}, {"y"}, "choice");
  add_graph(choice, "then_branch").output("less");
  GraphBuilder(*choice.mutable_attribute(0)->mutable_g()).node("Sub", {"grown", "layer.w"}, {"less"});
  add_graph(choice, "else_branch").output("same");
  GraphBuilder(*choice.mutable_attribute(1)->mutable_g()).node("Identity", {"grown"}, {"same"});
  return model;
}

// Gives what the program that links LibTorch only prints of a model, saved.
std::string printed(const ModelBuilder& model, const std::string& arguments_after) {
  const Program program = trainable(model);
  ModuleNames names{arguments(program), {}, "{}"};
  for (const size_t i : weights(program)) names.weights.push_back({"part", program.constants[i].name});
  for (auto& path : names.weights) std::ranges::replace(path.back(), '.', '_');
  torch::jit::Module module = script_module(program, names);
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "module.pt").string();
  module.save(file);
  return output_of(std::string(RUN_MODULE) + " " + file + " " + arguments_after + " 2>&1");
}

TEST(Export, RunsInAProgramThatLinksLibTorchOnly) { EXPECT_EQ(printed(doubling_model(), "3"), "4 8 12 "); }

TEST(Export, RunsInAProgramThatLoadsTheKernels) {
  ModelBuilder model;
  model.input("x", kFloat, {4}).output("y");
  floats(*model.file()->proto.mutable_graph(), "w", {1, 1, 1, 0});
  model.node("Mul", {"x", "w"}, {"product"});
  model.node("Unique", {"product"}, {"y"});
  EXPECT_EQ(printed(model, std::string("4 ") + KERNELS), "0 1 2 3 ");
  EXPECT_THAT(printed(model, "4"), HasSubstr("onnx_torch::unique"));
}

TEST(Export, FloatingWeightsAreParametersAndOthersBuffers) {
  ModelBuilder model;
  model.input("x", kFloat, {2}).output("y");
  floats(*model.file()->proto.mutable_graph(), "w", {1, 2});
  model.ints("i", {1, 0}, {2});
  model.node("Mul", {"x", "w"}, {"product"});
  model.node("Gather", {"product", "i"}, {"y"});
  const Program program = trainable(model);
  const torch::jit::Module module = script_module(program, {arguments(program), {{"w"}, {"i"}}, ""});
  EXPECT_THAT(module.parameters(), SizeIs(1));
  EXPECT_THAT(module.buffers(), SizeIs(1));
  EXPECT_TRUE(module.attr("w").toTensor().requires_grad());
}

TEST(Export, WhatIsComputedFromATrainableWeightIsNotFolded) {
  ModelBuilder model;
  model.input("x", kFloat, {2}).output("y");
  floats(*model.file()->proto.mutable_graph(), "w", {1, 2});
  model.node("Neg", {"w"}, {"negative"});
  model.node("Add", {"x", "negative"}, {"y"});
  EXPECT_THAT(weights(trainable(model)), SizeIs(1));
  EXPECT_THAT(weights(translate(model.file())), SizeIs(0));
}

TEST(Export, CustomOperatorsAreListedWithTheirNodes) {
  ModelBuilder model;
  model.input("x", kFloat, {1, 1, 4, 4})
      .input("rois", kFloat, {1, 4})
      .input("batch", onnx::TensorProto::INT64, {1})
      .output("y");
  model.node("RoiAlign", {"x", "rois", "batch"}, {"y"}, "align");
  const auto custom = custom_operators(trainable(model));
  ASSERT_THAT(custom, SizeIs(1));
  EXPECT_EQ(custom[0].name, "onnx_torch::roi_align");
  EXPECT_EQ(custom[0].node.name, "align");
}

}  // namespace
}  // namespace onnxtorch::testing
