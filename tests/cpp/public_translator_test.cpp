// Translators from another library, and from the program itself.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx_torch/library.h>
#include <onnx_torch/model.h>

#include "public_models.h"

namespace onnxtorch {
namespace {

using onnx::TensorProto;
using testing::GraphBuilder;
using ::testing::HasSubstr;
using testing::longs;
using testing::model_bytes;

class Translators : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { load_library(TEST_OPERATORS); }
};

Model one_node(const std::string& op, size_t inputs, size_t outputs, int64_t version = 1,
               const std::function<void(onnx::NodeProto&)>& attributes = {},
               TensorProto::DataType type = TensorProto::FLOAT) {
  return Model::from_bytes(model_bytes(
      [&](onnx::ModelProto&, GraphBuilder& g) {
        std::vector<std::string> in, out;
        for (size_t i = 0; i < inputs; ++i) {
          in.push_back(std::string("x") + std::to_string(i));
          g.input(in.back(), i == 1 && op == "Describe" ? TensorProto::INT64 : type, {testing::kAny});
        }
        for (size_t i = 0; i < outputs; ++i) {
          out.push_back(std::string("y") + std::to_string(i));
          g.output(out.back());
        }
        onnx::NodeProto& node = g.node(op, in, out, "node");
        node.set_domain("test.cpp");
        if (attributes) attributes(node);
      },
      version));
}

onnx::AttributeProto& attribute(onnx::NodeProto& node, const std::string& name,
                                onnx::AttributeProto::AttributeType type) {
  auto* added = node.add_attribute();
  added->set_name(name);
  added->set_type(type);
  return *added;
}

TEST_F(Translators, CallOperatorsOnInputsAndAttributes) {
  const at::Tensor x = at::tensor({1.0F, -2.0F});
  EXPECT_TRUE(at::equal(one_node("Scaled", 1, 1).compile().run({x})[0].tensor(), 2 * x));
  const auto with_factor = [](onnx::NodeProto& node) {
    attribute(node, "factor", onnx::AttributeProto::FLOAT).set_f(0.5F);
  };
  EXPECT_TRUE(at::equal(one_node("Scaled", 2, 1, 2, with_factor).compile().run({x, x})[0].tensor(), 1.5 * x));
  EXPECT_TRUE(at::equal(one_node("Scaled", 2, 1, 7).compile().run({x, at::tensor({3.0F})})[0].tensor(), 3 * x));
}

TEST_F(Translators, GiveSeveralOutputs) {
  const auto axis = [](onnx::NodeProto& node) { attribute(node, "axis", onnx::AttributeProto::INT).set_i(0); };
  const Outputs outputs = one_node("Parts", 1, 3, 1, axis).compile().run({at::tensor({1.0F, 5.0F, 2.0F})});
  EXPECT_TRUE(at::equal(outputs[0].tensor(), at::tensor({5.0F})));
  EXPECT_TRUE(at::equal(outputs[1].tensor(), longs({1})));
  EXPECT_TRUE(at::equal(outputs[2].tensor(), longs({3}).squeeze()));
  EXPECT_EQ(one_node("Parts", 1, 2, 1, axis).compile().run({at::ones({3})}).size(), 2U);
}

TEST_F(Translators, UseConstantsAndOperatorsOfTheirLibrary) {
  const auto model = one_node("Table", 1, 1, 1, {}, TensorProto::INT64).compile();
  EXPECT_TRUE(at::equal(model.run({longs({2, 0})})[0].tensor(), at::tensor({30.0F, 11.0F})));
}

TEST_F(Translators, ReadEveryKindOfAttribute) {
  const auto attributes = [](onnx::NodeProto& node) {
    auto& ints = attribute(node, "ints", onnx::AttributeProto::INTS);
    ints.add_ints(2);
    ints.add_ints(1);
    attribute(node, "floats", onnx::AttributeProto::FLOATS).add_floats(0.5F);
    attribute(node, "text", onnx::AttributeProto::STRING).set_s("text");
    auto& texts = attribute(node, "texts", onnx::AttributeProto::STRINGS);
    texts.add_strings("a");
    texts.add_strings("b");
    auto* tensor = attribute(node, "tensor", onnx::AttributeProto::TENSOR).mutable_t();
    tensor->set_data_type(TensorProto::FLOAT);
    tensor->add_float_data(1);
  };
  const Outputs outputs = one_node("Describe", 2, 3, 1, attributes).compile().run({at::arange(4.0F), longs({2, 2})});
  EXPECT_EQ(outputs[0].tensor().item<float>(), 1.5F);
  EXPECT_TRUE(at::equal(outputs[1].tensor(), at::zeros({2, 1}, at::kByte)));
  EXPECT_TRUE(at::equal(outputs[2].tensor(), at::arange(4.0F).reshape({2, 2})));
  EXPECT_EQ(one_node("Describe", 2, 3, 1, attributes).compile().outputs()[1].type.str(), "tensor(uint4)");
}

// Gives the node a body: y = sum of the inputs and of w, a value of the graph around it.
void add_body(onnx::NodeProto& node, const std::vector<std::string>& inputs) {
  GraphBuilder body = testing::add_graph(node, "body");
  std::string sum = "w";
  for (const std::string& input : inputs) {
    body.input(input, TensorProto::FLOAT, {testing::kAny});
    body.node("Add", {sum, input}, {sum + "+" + input});
    sum += "+" + input;
  }
  body.output(sum);
}

CompiledModel with_body(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& of_body, const std::vector<std::string>& outputs) {
  const auto bytes = model_bytes([&](onnx::ModelProto&, GraphBuilder& g) {
    for (const auto& name : inputs) {
      g.input(name, name == "condition" ? TensorProto::BOOL : TensorProto::FLOAT, {testing::kAny});
    }
    for (const auto& name : outputs) g.output(name);
    onnx::NodeProto& node = g.node(op, {inputs.begin(), inputs.end() - 1}, outputs, "node");
    node.set_domain("test.cpp");
    add_body(node, of_body);
  });
  return Model::from_bytes(bytes).compile();
}

TEST_F(Translators, TranslateSubgraphsInLoops) {
  const auto model = with_body("Fold", {"state", "x", "w"}, {"s", "row"}, {"last", "all"});
  const at::Tensor x = at::tensor({1.0F, 2.0F, 4.0F});
  const Outputs outputs = model.run({at::tensor({0.5F}), x, at::tensor({10.0F})});
  EXPECT_EQ(outputs["last"].tensor().item<float>(), 37.5F);
  EXPECT_TRUE(at::equal(outputs["all"].tensor(), at::tensor({11.5F, 23.5F, 37.5F}).unsqueeze(1)));
  EXPECT_EQ(model.outputs()[1].type.str(), "tensor(float)");
}

TEST_F(Translators, TranslateSubgraphsInBranches) {
  const auto model = with_body("Choose", {"condition", "x", "w"}, {"inner"}, {"y"});
  for (const bool condition : {true, false}) {
    const Outputs outputs = model.run({at::full({1}, condition, at::kBool), at::tensor({1.0F}), at::tensor({10.0F})});
    EXPECT_EQ(outputs[0].tensor().item<float>(), condition ? 11.0F : 1.0F);
  }
}

TEST_F(Translators, LoopWhileAConditionHolds) {
  const auto model = one_node("Halvings", 2, 1).compile();
  EXPECT_EQ(model.run({at::tensor({40.0F}), at::tensor({3.0F})})[0].tensor().item<int64_t>(), 4);
  EXPECT_EQ(model.run({at::tensor({2.0F}), at::tensor({3.0F})})[0].tensor().item<int64_t>(), 0);
}

TEST_F(Translators, LookAtTexts) {
  const auto suffix = [](onnx::NodeProto& node) { attribute(node, "suffix", onnx::AttributeProto::STRING).set_s("!"); };
  const auto model = Model::from_bytes(model_bytes([&](onnx::ModelProto&, GraphBuilder& g) {
                       g.input("x", TensorProto::STRING, {testing::kAny, testing::kAny}).output("y");
                       onnx::NodeProto& node = g.node("Append", {"x"}, {"y"});
                       node.set_domain("test.cpp");
                       suffix(node);
                     })).compile();
  const Strings y = model.run({Strings{{"a", "", "b", "a"}, {2, 2}}})[0].strings();
  EXPECT_EQ(y.values, (std::vector<std::string>{"a!", "!", "b!", "a!"}));
  EXPECT_EQ(y.sizes, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(model.outputs()[0].type.str(), "tensor(string)");
}

TEST_F(Translators, GiveTextsOfAttributes) {
  const auto attributes = [](onnx::NodeProto& node) {
    auto& words = attribute(node, "words", onnx::AttributeProto::STRINGS);
    for (const char* word : {"zero", "one", "two"}) words.add_strings(word);
    auto* tensor = attribute(node, "tensor", onnx::AttributeProto::TENSOR).mutable_t();
    tensor->set_data_type(TensorProto::STRING);
    tensor->add_string_data("two");
  };
  const Outputs outputs = one_node("Words", 1, 2, 1, attributes, TensorProto::INT64).compile().run({longs({2, 0, 2})});
  EXPECT_EQ(outputs[0].strings().values, (std::vector<std::string>{"two", "zero", "two"}));
  EXPECT_TRUE(at::equal(outputs[1].tensor(), longs({1, 0, 1}).to(at::kBool)));
}

template <typename E>
E compile_error(const Model& model) {
  try {
    model.compile();
  } catch (const E& error) {
    return error;
  }
  ADD_FAILURE() << "no such exception";
  return E("none");
}

TEST_F(Translators, NameTheNodeInErrors) {
  const auto too_many = compile_error<InvalidModelError>(one_node("Scaled", 3, 1));
  EXPECT_STREQ(too_many.what(), "test.cpp.Scaled \"node\" (opset 1): takes one or two inputs");
  EXPECT_EQ(too_many.node().domain, "test.cpp");
  EXPECT_THAT(compile_error<InvalidModelError>(one_node("Parts", 1, 2)).what(),
              HasSubstr("the attribute \"axis\" is missing"));
  EXPECT_THAT(compile_error<Error>(one_node("Unknown", 1, 1)).what(), HasSubstr("nobody::knows"));
  EXPECT_THAT(compile_error<Error>(one_node("Unqualified", 1, 1)).what(), HasSubstr("write \"namespace::name\""));
  EXPECT_EQ(compile_error<Error>(one_node("Unqualified", 1, 1)).node().op_type, "Unqualified");
  EXPECT_THAT(compile_error<InvalidModelError>(one_node("Fold", 2, 1)).what(),
              HasSubstr("the attribute \"body\" is missing"));
}

TEST_F(Translators, MayBeAPartOfTheProgram) {
  using namespace translator;
  operators().add("test.cpp", "Negative", 1, [](Graph& graph, const Node& node) -> translator::Values {
    return {graph.call("aten::neg", {node.input(0)})};
  });
  EXPECT_TRUE(at::equal(one_node("Negative", 1, 1).compile().run({at::ones({1})})[0].tensor(), -at::ones({1})));
  EXPECT_THROW(operators().add("ai.onnx", "Relu", 1, {}), InputError);
}

TEST(LoadLibrary, SaysWhatIsWrong) {
  const auto message = [](const char* file) -> std::string {
    try {
      load_library(file);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no exception";
  };
  EXPECT_THAT(message("there/is/no/library.so"), HasSubstr("there/is/no/library.so"));
  EXPECT_THAT(message("libm.so.6"), HasSubstr("build it with this release's onnx_torch/translator.h"));
}

}  // namespace
}  // namespace onnxtorch
