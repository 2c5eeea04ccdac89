// Tests of what the official suite cannot see of translation: what stays on the host, scopes, and each kind of error.
#include "translate/translate.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>

#include <set>

#include "model_builder.h"
#include "runtime/model.h"
#include "runtime/pipeline.h"

namespace onnxtorch {
namespace {

using onnx::TensorProto;
using testing::add_graph;
using testing::kAny;
using testing::ModelBuilder;
using testing::set_int;

size_t count(const torch::jit::Block& block, const std::set<std::string>& kinds) {
  size_t found = 0;
  for (const torch::jit::Node* node : block.nodes()) {
    found += kinds.contains(node->kind().toQualString());
    for (const torch::jit::Block* inner : node->blocks()) found += count(*inner, kinds);
  }
  return found;
}

// Counts the nodes by which a graph can read a tensor's elements on the host.
size_t read_backs(const Program& program) {
  size_t found =
      count(*program.graph->block(), {"prim::tolist", "aten::item", "aten::_local_scalar_dense", "aten::nonzero"});
  for (const char* kind : {"aten::Int", "aten::Float", "aten::Bool"}) {
    for (const torch::jit::Node* node : program.graph->nodes()) {
      const bool of_tensor = node->kind().toQualString() == std::string(kind) &&
                             node->input(0)->type()->kind() == c10::TypeKind::TensorType;
      found += of_tensor;
    }
  }
  return found;
}

Fed floats(const at::Tensor& tensor) { return {ValueType::tensor(ElementType::Float), tensor}; }

at::Tensor run_one(const PreparedModel& model, const at::Tensor& x) {
  return model.run(FedInputs{floats(x)}, model.new_strings()).values.at(0).toTensor();
}

// Makes a model of x: [rows, 6] → its rows in pairs, by Shape → Gather → Div → Concat → Reshape.
std::shared_ptr<ModelFile> paired_rows(int64_t rows) {
  ModelBuilder m;
  m.input("x", TensorProto::FLOAT, {rows, 6}).output("y");
  m.ints("zero", {0}, {}).ints("two", {2}, {}).ints("axis", {0}, {1}).ints("minus", {-1}, {1});
  m.node("Shape", {"x"}, {"shape"});
  m.node("Gather", {"shape", "zero"}, {"rows"});
  m.node("Div", {"rows", "two"}, {"half"});
  m.node("Unsqueeze", {"half", "axis"}, {"half1"});
  set_int(m.node("Concat", {"half1", "minus"}, {"target"}), "axis", 0);
  m.node("Reshape", {"x", "target"}, {"y"});
  return m.file();
}

TEST(HostInts, ShapeArithmeticNeverReadsATensorBack) {
  for (const int64_t rows : {int64_t{4}, kAny}) {
    const Program program = translate(paired_rows(rows));
    EXPECT_EQ(read_backs(program), 0u) << program.graph->toString();
    EXPECT_EQ(run_one(PreparedModel(paired_rows(rows), {}), at::ones({4, 6})).sizes(), at::IntArrayRef({2, 12}));
  }
}

TEST(HostInts, StaticShapesFoldAway) {
  const Program program = translate(paired_rows(4));
  EXPECT_EQ(count(*program.graph->block(), {"aten::size", "aten::div", "aten::floordiv", "aten::tensor"}), 0u)
      << program.graph->toString();
}

TEST(HostInts, AShapeThatIsFedIsReadBackOnce) {
  ModelBuilder m;
  m.input("x", TensorProto::FLOAT, {kAny}).input("s", TensorProto::INT64, {2}).output("y");
  m.node("Reshape", {"x", "s"}, {"y"});
  EXPECT_EQ(read_backs(translate(m.file())), 1u);
}

TEST(Scopes, ASubgraphSeesTheGraphAroundItAndShadowsIt) {
  ModelBuilder m;
  m.input("x", TensorProto::FLOAT, {kAny}).input("c", TensorProto::BOOL, {}).output("y");
  m.node("Relu", {"x"}, {"inner"});
  auto& branch = m.node("If", {"c"}, {"y"});
  auto then_graph = add_graph(branch, "then_branch");
  then_graph.node("Neg", {"inner"}, {"a"});
  then_graph.output("a");
  auto else_graph = add_graph(branch, "else_branch");
  else_graph.node("Neg", {"x"}, {"inner"});  // another value of that name, in here only
  else_graph.node("Neg", {"inner"}, {"b"});
  else_graph.output("b");
  const PreparedModel model(m.file(), {});
  const at::Tensor x = at::tensor({-1.f, 2.f});
  const auto run = [&](bool condition) {
    return model
        .run(FedInputs{floats(x), Fed{ValueType::tensor(ElementType::Bool), at::scalar_tensor(condition, at::kBool)}},
             model.new_strings())
        .values.at(0)
        .toTensor();
  };
  EXPECT_TRUE(at::equal(run(true), -at::relu(x)));
  EXPECT_TRUE(at::equal(run(false), x));
}

TEST(Scopes, AFunctionDoesNotSeeItsCaller) {
  ModelBuilder m;
  m.input("x", TensorProto::FLOAT, {kAny}).output("y");
  auto& call = m.node("Local", {"x"}, {"y"});
  call.set_domain("local");
  auto* import = m.file()->proto.add_opset_import();
  import->set_domain("local");
  import->set_version(1);
  auto* function = m.file()->proto.add_functions();
  function->set_domain("local");
  function->set_name("Local");
  function->add_input("a");
  function->add_output("b");
  function->add_opset_import()->set_version(22);
  auto* node = function->add_node();
  node->set_op_type("Relu");
  node->add_input("a");
  node->add_output("b");
  EXPECT_TRUE(at::equal(run_one(PreparedModel(m.file(), {}), at::tensor({-1.f, 2.f})), at::tensor({0.f, 2.f})));
  node->set_input(0, "x");
  EXPECT_THROW(PreparedModel(m.file(), {}), InvalidModelError);
}

TEST(Weights, AreViewsOfTheModelAndKeepIt) {
  const auto program_and_data = [] {
    ModelBuilder m;
    m.input("x", TensorProto::FLOAT, {kAny}).output("y");
    m.node("Add", {"x", "w"}, {"y"});
    auto* weight = m.file()->proto.mutable_graph()->add_initializer();
    weight->set_name("w");
    weight->set_data_type(TensorProto::FLOAT);
    weight->add_dims(10'000);
    weight->set_raw_data(std::string(40'000, '\0'));
    return std::pair(translate(m.file()), static_cast<const void*>(weight->raw_data().data()));
  };
  const auto [program, data] = program_and_data();
  const at::Tensor weight = program.constants.at(0).value.toTensor();
  EXPECT_EQ(weight.const_data_ptr(), data);
  EXPECT_EQ(weight.abs().max().item<float>(), 0);
}

// Makes a model of x: [1, any, 64] → its softmax along dimension 1, and products of the rows of that with a matrix.
std::shared_ptr<ModelFile> scores() {
  ModelBuilder m;
  m.input("x", TensorProto::FLOAT, {1, kAny, 64}).output("h").output("y");
  set_int(m.node("Softmax", {"x"}, {"h"}), "axis", 1);
  auto* weight = m.file()->proto.mutable_graph()->add_initializer();
  weight->set_name("w");
  weight->set_data_type(TensorProto::FLOAT);
  for (const int64_t size : {64, 96}) weight->add_dims(size);
  for (int i = 0; i < 64 * 96; ++i) weight->add_float_data(static_cast<float>(i % 7) - 3);
  m.node("MatMul", {"h", "w"}, {"y"});
  return m.file();
}

TEST(LastOnly, GivesTheLastElementAlongDimensionOne) {
  const PreparedModel model(scores(), {.last_only = {"y", "z"}});
  const FedInputs x{floats(at::arange(640).reshape({1, 10, 64}).sin())};
  const auto last = model.run(x, model.new_strings()).values;
  const auto whole = model.run(x, model.new_strings(), {.all_elements = true}).values;
  EXPECT_TRUE(at::equal(last.at(0).toTensor(), whole.at(0).toTensor()));
  EXPECT_EQ(last.at(1).toTensor().sizes(), at::IntArrayRef({1, 1, 96}));
  EXPECT_TRUE(at::allclose(last.at(1).toTensor(), whole.at(1).toTensor().slice(1, 9), 1e-6, 1e-6));
  EXPECT_EQ(whole.at(1).toTensor().size(1), 10);
}

TEST(LastOnly, ComputesNoMore) {
  TranslateOptions options;
  options.variant.last_only = {"y"};
  Program program = optimized(translate(scores(), options), c10::kCPU, {});
  const torch::jit::Node* const product = program.graph->outputs().at(1)->node();
  EXPECT_NE(product->kind(), c10::aten::slice) << program.graph->toString();
  EXPECT_EQ(product->input(0)->node()->kind(), c10::aten::slice) << program.graph->toString();
}

TEST(Errors, EachKindSaysWhichNode) {
  ModelBuilder unsupported;
  unsupported.input("x", TensorProto::FLOAT, {kAny}).output("y");
  unsupported.node("Nonsense", {"x"}, {"y"}, "n");
  try {
    PreparedModel(unsupported.file(), {});
    FAIL();
  } catch (const UnsupportedError& e) {
    EXPECT_EQ(e.node().op_type, "Nonsense");
    EXPECT_EQ(e.node().name, "n");
    EXPECT_EQ(e.node().version, 22);
  }

  ModelBuilder invalid;
  invalid.input("x", TensorProto::FLOAT, {kAny}).output("y");
  invalid.node("Concat", {"x"}, {"y"});
  EXPECT_THROW(PreparedModel(invalid.file(), {}), InvalidModelError);

  const auto good = paired_rows(kAny);
  EXPECT_THROW(PreparedModel(good, {.device = "TPU"}), DeviceError);
  EXPECT_THROW(PreparedModel(good, {.device = "CUDA:4096"}), DeviceError);
  EXPECT_THROW(PreparedModel(good, {.device = "CUDA:x"}), DeviceError);
  const PreparedModel model(good, {});
  EXPECT_THROW(run_one(model, at::ones({4, 5})), InputError);
  EXPECT_THROW(model.run(FedInputs(1), model.new_strings()), InputError);

  ModelBuilder failing;
  failing.input("x", TensorProto::FLOAT, {kAny}).output("y").ints("seven", {7}, {1});
  failing.node("Reshape", {"x", "seven"}, {"y"}, "r");
  try {
    run_one(PreparedModel(failing.file(), {}), at::ones({3}));
    FAIL();
  } catch (const RunError& e) {
    EXPECT_EQ(e.node().name, "r");
    EXPECT_NE(std::string(e.what()).find("Float [3]"), std::string::npos) << e.what();
  }
}

TEST(Types, AreReadAndWritten) {
  for (const char* text : {"tensor(float)", "seq(tensor(string))", "optional(seq(tensor(int4)))",
                           "map(int64, tensor(float))", "seq(map(string, tensor(float)))"}) {
    EXPECT_EQ(ValueType::parse(text).str(), text);
  }
  EXPECT_TRUE(ValueType::parse("map(int64, float)") == ValueType::map(ElementType::Int64, ElementType::Float));
  EXPECT_FALSE(ValueType::parse("T1").known());
}

}  // namespace
}  // namespace onnxtorch
