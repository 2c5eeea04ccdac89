#include "import/schema.h"

#include <gtest/gtest.h>
#include <onnx/onnx-ml.pb.h>

#include <algorithm>
#include <climits>
#include <tuple>

namespace onnxtorch {
namespace {

TEST(Schema, IsOrderedWithoutDuplicates) {
  const auto not_before = [](const OperatorSchema& a, const OperatorSchema& b) {
    return std::tie(a.domain, a.name, a.since_version) >= std::tie(b.domain, b.name, b.since_version);
  };
  for (const auto schemas : {all_schemas(), experimental_schemas(), onnxruntime_schemas(), community_schemas()}) {
    EXPECT_EQ(std::ranges::adjacent_find(schemas, not_before), schemas.end());
  }
}

TEST(Schema, FindsTheVersionInForce) {
  EXPECT_EQ(find_schema("", "Reshape", 13)->since_version, 13);
  EXPECT_EQ(find_schema("", "Reshape", 18)->since_version, 14);
  EXPECT_EQ(find_schema("", "Reshape", 22)->since_version, 21);
  EXPECT_EQ(find_schema("ai.onnx.ml", "LabelEncoder", 3)->since_version, 2);
}

TEST(Schema, FindsAnExperimentalOperatorWhereTheStandardHasNone) {
  EXPECT_EQ(find_schema("", "Affine", 1)->since_version, 1);
  EXPECT_EQ(find_schema("", "Affine", 28)->since_version, 1);
  EXPECT_EQ(find_schema("", "ThresholdedRelu", 9)->since_version, 1);
  EXPECT_EQ(find_schema("", "ThresholdedRelu", 10)->since_version, 10);
  EXPECT_TRUE(find_schema("org.pytorch.aten", "ATen", 1)->open_attributes);
}

TEST(Schema, IsNullForWhatDoesNotExist) {
  EXPECT_EQ(find_schema("", "NoSuchOperator", 22), nullptr);
  EXPECT_EQ(find_schema("", "", 22), nullptr);
  EXPECT_EQ(find_schema("", "GroupNormalization", 17), nullptr);
  EXPECT_EQ(find_schema("ai.onnx.ml", "Reshape", 22), nullptr);
  EXPECT_EQ(find_schema("com.example", "Reshape", 22), nullptr);
}

TEST(Schema, OfOnnxruntimeIsFoundWhereTheStandardHasNone) {
  EXPECT_EQ(find_schema("", "LayerNormalization", 16)->since_version, 1);
  EXPECT_EQ(find_schema("", "LayerNormalization", 17)->since_version, 17);
  EXPECT_EQ(find_schema("com.microsoft", "Gelu", 1)->since_version, 1);
}

TEST(Schema, KnowsTheNewestOpsetOfADomain) {
  EXPECT_EQ(newest_opset(""), 28);
  EXPECT_EQ(newest_opset("ai.onnx.ml"), 5);
  EXPECT_EQ(newest_opset("com.example"), 0);
}

TEST(Schema, HasAttributeDefaults) {
  const OperatorSchema& gemm = *find_schema("", "Gemm", 13);
  onnx::AttributeProto alpha;
  ASSERT_TRUE(alpha.ParseFromString(std::string(gemm.find_attribute("alpha")->default_value)));
  EXPECT_EQ(alpha.type(), onnx::AttributeProto::FLOAT);
  EXPECT_EQ(alpha.f(), 1.0f);
  EXPECT_EQ(gemm.find_attribute("gamma"), nullptr);

  const AttributeSchema& to = *find_schema("", "Cast", 13)->find_attribute("to");
  EXPECT_TRUE(to.required);
  EXPECT_TRUE(to.default_value.empty());
}

TEST(Schema, HasFormalParametersAndTypes) {
  const OperatorSchema& concat = *find_schema("", "Concat", 13);
  EXPECT_EQ(concat.max_inputs, INT_MAX);
  ASSERT_EQ(concat.inputs.size(), 1u);
  EXPECT_EQ(concat.inputs[0].option, FormalOption::Variadic);
  EXPECT_TRUE(concat.inputs[0].homogeneous);
  EXPECT_FALSE(find_schema("", "Loop", 13)->inputs[2].homogeneous);
  EXPECT_EQ(find_schema("", "Clip", 13)->inputs[1].option, FormalOption::Optional);
  EXPECT_TRUE(find_schema("", "Upsample", 10)->deprecated);

  const auto constraints = find_schema("", "Gemm", 13)->constraints;
  ASSERT_EQ(constraints.size(), 1u);
  EXPECT_EQ(constraints[0].parameter, "T");
  EXPECT_EQ(std::ranges::count(constraints[0].allowed, "tensor(bfloat16)"), 1);
}

TEST(Schema, EveryStoredMessageParses) {
  for (const OperatorSchema& schema : all_schemas()) {
    for (const AttributeSchema& attribute : schema.attributes) {
      onnx::AttributeProto value;
      ASSERT_TRUE(value.ParseFromString(std::string(attribute.default_value))) << schema.name;
      if (attribute.default_value.empty()) continue;
      EXPECT_EQ(value.name(), attribute.name) << schema.name;
      EXPECT_EQ(value.type(), attribute.type) << schema.name;
    }
    for (const FunctionBody& body : schema.bodies) {
      onnx::FunctionProto function;
      ASSERT_TRUE(function.ParseFromString(std::string(body.function))) << schema.name;
      EXPECT_EQ(function.name(), schema.name);
      EXPECT_GT(function.node_size(), 0) << schema.name;
    }
  }
}

}  // namespace
}  // namespace onnxtorch
