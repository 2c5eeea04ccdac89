// The public interface, from the shared library.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx_torch/model.h>

#include <exception>
#include <stdexcept>
#include <thread>

#include "public_models.h"
#include "temporary_folder.h"

namespace onnxtorch {
namespace {

using onnx::TensorProto;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GraphBuilder;
using ::testing::HasSubstr;
using testing::longs;
using testing::model_bytes;
using testing::TemporaryFolder;

template <typename E>
std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another exception: " << error.what();
    return {};
  }
  ADD_FAILURE() << "no exception";
  return {};
}

// Makes a model of y = x + w, z = -y; x of shape [batch, 3], w an initializer and an input.
std::string two_outputs() {
  return model_bytes([](onnx::ModelProto& model, GraphBuilder& g) {
    g.input("x", TensorProto::INT64, {testing::kAny, 3})
        .input("w", TensorProto::INT64, {3})
        .ints("w", {10, 20, 30}, {3});
    model.mutable_graph()
        ->mutable_input(0)
        ->mutable_type()
        ->mutable_tensor_type()
        ->mutable_shape()
        ->mutable_dim(0)
        ->set_dim_param("batch");
    g.node("Add", {"x", "w"}, {"y"}, "addition");
    g.node("Neg", {"y"}, {"z"});
    g.output("y").output("z");
    auto* type = model.mutable_graph()->mutable_output(0)->mutable_type()->mutable_tensor_type();
    type->set_elem_type(TensorProto::INT64);
    type->mutable_shape()->add_dim()->set_dim_param("batch");
    type->mutable_shape()->add_dim()->set_dim_value(3);
    auto* entry = model.add_metadata_props();
    entry->set_key("author");
    entry->set_value("nobody");
  });
}

at::Tensor row(int64_t first) { return at::arange(first, first + 3).reshape({1, 3}); }

TEST(Model, LoadsCompilesAndRuns) {
  const TemporaryFolder folder;
  const Outputs outputs =
      Model::load(folder.write("two_outputs.onnx", two_outputs())).compile({.device = "cpu"}).run({row(1)});
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_TRUE(at::equal(outputs[0].tensor(), row(1) + longs({10, 20, 30})));
  EXPECT_TRUE(at::equal(outputs["z"].tensor(), -outputs["y"].tensor()));
  EXPECT_THAT(outputs.names(), ElementsAre("y", "z"));
}

TEST(Model, IsMadeReadyFor) {
  make_ready();
  EXPECT_TRUE(c10::Dispatcher::singleton().findSchema({"onnx_torch::chain", ""}));
  const std::jthread other(make_ready);
  const CompiledModel model = Model::from_bytes(two_outputs()).compile();
  EXPECT_TRUE(at::equal(model.run({row(1)})["z"].tensor(), longs({-11, -22, -33}).reshape({1, 3})));
}

TEST(Model, TellsItsInputsAndOutputs) {
  const Model model = Model::from_bytes(two_outputs());
  const auto inputs = model.inputs();
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(inputs[0].name, "x");
  EXPECT_EQ(inputs[0].type.str(), "tensor(int64)");
  ASSERT_TRUE(inputs[0].dims);
  EXPECT_EQ(inputs[0].dims->at(0).symbol, "batch");
  EXPECT_EQ(inputs[0].dims->at(0).size, -1);
  EXPECT_EQ(inputs[0].dims->at(1).size, 3);
  EXPECT_FALSE(inputs[0].has_default);
  EXPECT_TRUE(inputs[1].has_default);
  EXPECT_EQ(model.outputs().at(0).dims->at(0).symbol, "batch");
  EXPECT_FALSE(model.outputs().at(1).dims);
  EXPECT_THAT(model.metadata(), ElementsAre(std::pair<const std::string, std::string>("author", "nobody")));

  const CompiledModel compiled = model.compile({.threads = 1, .shapes = {{"batch", 2}}});
  EXPECT_EQ(compiled.inputs().at(0).dims->at(0).size, 2);
  EXPECT_EQ(compiled.outputs().at(0).dims->at(0).size, 2);
  EXPECT_EQ(compiled.outputs().at(1).type.str(), "tensor(int64)");
  EXPECT_EQ(compiled.options().threads, 1);
}

TEST(Model, TellsWhereItsNodesRun) {
  const auto placed = Model::from_bytes(two_outputs()).compile({.optimize = false}).placement();
  ASSERT_EQ(placed.size(), 2U);
  EXPECT_EQ(placed[0].node.op_type, "Add");
  EXPECT_EQ(placed[0].output, "y");
  EXPECT_EQ(placed[0].where, "CPU");
  EXPECT_EQ(placed[0].why, "");
  EXPECT_EQ(placed[1].node.op_type, "Neg");
}

TEST(Model, TakesInputsByPositionAndByName) {
  const CompiledModel model = Model::from_bytes(two_outputs()).compile();
  const at::Tensor w = longs({1, 2, 3});
  const at::Tensor expected = row(4) + w;
  EXPECT_TRUE(at::equal(model.run({row(4), w})[0].tensor(), expected));
  EXPECT_TRUE(at::equal(model.run({{"w", w}, {"x", row(4)}})["y"].tensor(), expected));
  const Outputs only_z = model.run({{"x", row(4)}}, {"z"});
  EXPECT_EQ(only_z.size(), 1U);
  EXPECT_TRUE(at::equal(only_z[0].tensor(), -row(4) - longs({10, 20, 30})));
}

TEST(Model, ExplainsWhatIsWrong) {
  const Model model = Model::from_bytes(two_outputs());
  const CompiledModel compiled = model.compile();
  EXPECT_THAT(message_of<InputError>([&] { compiled.run(); }), HasSubstr("expected 1 inputs (x), not 0"));
  EXPECT_THAT(message_of<InputError>([&] { compiled.run({{"v", row(1)}}); }),
              HasSubstr("unknown input \"v\"; the model's inputs are x, w"));
  EXPECT_THAT(message_of<InputError>([&] { compiled.run({{"w", row(1)}}); }), HasSubstr("\"x\" is missing"));
  EXPECT_THAT(message_of<InputError>([&] { compiled.run({row(1).to(at::kFloat)}); }),
              HasSubstr("must be tensor(int64), not tensor(float)"));
  EXPECT_THAT(message_of<InputError>([&] { compiled.run({at::ones({1, 2}, at::kLong)}); }),
              HasSubstr("of shape [batch, 3], not [1, 2]"));
  EXPECT_THAT(message_of<InputError>([&] { compiled.run({at::Tensor()}); }), HasSubstr("undefined tensor"));
  EXPECT_THAT(message_of<InputError>([&] { compiled.run({at::ones({1, 3}, at::kComplexHalf)}); }),
              HasSubstr("no type for: ComplexHalf"));
  EXPECT_THAT(message_of<InputError>([&] { compiled.run({Sequence{{row(1)}}}); }),
              HasSubstr("must be tensor(int64), not seq(tensor(int64))"));
  EXPECT_THAT(message_of<InputError>([&] { compiled.run({Strings{{"a"}, {1}}}); }),
              HasSubstr("must be tensor(int64), not tensor(string)"));
  EXPECT_THAT(message_of<InputError>([&] { compiled.run({{"x", row(1)}}, {"nothing"}); }),
              HasSubstr("no value \"nothing\""));
  EXPECT_THAT(message_of<Error>([&] { compiled.run({row(1)})[0].strings(); }),
              HasSubstr("is a tensor, not a tensor of strings"));
  EXPECT_THAT(message_of<InputError>([&] { compiled.run({row(1)})["x"]; }), HasSubstr("no output \"x\""));
  EXPECT_THAT(message_of<InputError>([&] { compiled.run({row(1)})[2]; }), HasSubstr("there are 2"));
  EXPECT_THAT(message_of<DeviceError>([&] { model.compile({.device = "tpu"}); }), HasSubstr("tpu"));
  EXPECT_THAT(message_of<InputError>([&] { model.compile({.cuda_graphs = true}); }), HasSubstr("is for CUDA devices"));
  EXPECT_THAT(message_of<InputError>([&] { model.compile({.shapes = {{"length", 2}}}); }),
              HasSubstr("there are batch"));
  EXPECT_THAT(message_of<InvalidModelError>([&] { Model::load("there/is/no.onnx"); }), HasSubstr("there/is/no.onnx"));
  EXPECT_THAT(message_of<InvalidModelError>([&] { Model::from_bytes("no model"); }), HasSubstr("not an ONNX model"));
}

// Makes a model that negates the input so many times as the first one says.
std::string negates_often() {
  return model_bytes([](onnx::ModelProto&, GraphBuilder& g) {
    g.input("times", TensorProto::INT64, {}).input("x", TensorProto::INT64, {3});
    onnx::NodeProto& loop = g.node("Loop", {"times", "", "x"}, {"y"}, "often");
    GraphBuilder body = testing::add_graph(loop, "body");
    body.input("i", TensorProto::INT64, {}).input("on", TensorProto::BOOL, {}).input("a", TensorProto::INT64, {3});
    body.node("Identity", {"on"}, {"goes_on"});
    body.node("Neg", {"a"}, {"b"});
    body.output("goes_on").output("b");
    g.output("y");
  });
}

// One of the two would be fed by its name, and the other would be nothing.
TEST(Model, HasNoTwoInputsOfOneName) {
  const std::string bytes = model_bytes([](onnx::ModelProto&, GraphBuilder& g) {
    for (int i = 0; i < 2; ++i) g.input("w", TensorProto::INT64, {3});
    g.ints("w", {10, 20, 30}, {3}).node("Neg", {"w"}, {"y"});
    g.output("y");
  });
  const auto run = [&] { Model::from_bytes(bytes).compile().run(Feeds{{"w", longs({1, 2, 3})}}); };
  EXPECT_EQ(message_of<InvalidModelError>(run), "two inputs are called \"w\"");
}

TEST(Model, IsStoppedByEachLimit) {
  const Model model = Model::from_bytes(negates_often());
  const auto inputs = [](int64_t times) {
    return std::vector<Data>{at::scalar_tensor(times, at::kLong), longs({1, 2, 3})};
  };
  const Limits wide{
      .seconds = 60, .memory = 1e6, .max_iterations = 3, .prepare_seconds = 60, .nodes = 3, .constant_bytes = 1};
  EXPECT_TRUE(at::equal(model.compile({.limits = wide}).run(inputs(3))[0].tensor(), longs({-1, -2, -3})));
  const auto stopped = [&](const Limits& limits, int64_t times) {
    return message_of<StoppedError>([&] { model.compile({.limits = limits}).run(inputs(times)); });
  };
  EXPECT_THAT(stopped({.max_iterations = 3}, 4),
              AllOf(HasSubstr("Loop \"often\""), HasSubstr("more than the 3 iterations")));
  EXPECT_THAT(stopped({.seconds = 0.1}, int64_t{1} << 40), HasSubstr("longer than the 0.1 seconds"));
  EXPECT_THAT(stopped({.prepare_seconds = 1e-9}, 1), HasSubstr("(prepare_seconds)"));
}

TEST(Model, IsStoppedByLimits) {
  const Model model = Model::from_bytes(two_outputs());
  const std::vector<Data> inputs = {row(1)};
  EXPECT_EQ(model.compile({.limits = {.seconds = 60, .memory = 1e6}}).run(inputs).size(), 2U);
  EXPECT_THAT(message_of<StoppedError>([&] { model.compile({.limits = {.memory = 8}}).run(inputs); }),
              AllOf(HasSubstr("Add \"addition\" (opset 22): the run"), HasSubstr("the option limits allows it 8")));
  EXPECT_THAT(message_of<StoppedError>([&] { model.compile({.limits = {.nodes = 1}}); }),
              AllOf(HasSubstr("Neg (opset 22): the model has more nodes than the 1"), HasSubstr("(nodes)")));
  EXPECT_EQ(model.compile({.limits = {.max_iterations = 1, .nodes = 2}}).run(inputs).size(), 2U);
  EXPECT_THAT(message_of<InputError>([&] { model.compile({.links = "maybe"}); }), HasSubstr("follow"));
  EXPECT_THAT(message_of<InputError>([&] { model.compile({.limits = {.seconds = -1}}); }), HasSubstr("more than 0"));
}

TEST(Model, NamesTheNodeThatFails) {
  const auto model =
      Model::from_bytes(model_bytes([](onnx::ModelProto&, GraphBuilder& g) {
        g.input("x", TensorProto::FLOAT, {testing::kAny}).input("shape", TensorProto::INT64, {testing::kAny});
        g.node("Reshape", {"x", "shape"}, {"y"}, "here");
        g.output("y");
      })).compile();
  try {
    model.run({at::ones({5}), longs({2, 2})});
    FAIL() << "no exception";
  } catch (const RunError& error) {
    EXPECT_EQ(error.node().op_type, "Reshape");
    EXPECT_EQ(error.node().name, "here");
    EXPECT_EQ(error.node().version, 22);
    EXPECT_THAT(error.what(), HasSubstr("Reshape \"here\" (opset 22): "));
  }
  const auto unknown = Model::from_bytes(model_bytes([](onnx::ModelProto&, GraphBuilder& g) {
    g.input("x", TensorProto::FLOAT, {});
    g.node("NoSuchOperator", {"x"}, {"y"});
    g.output("y");
  }));
  EXPECT_THAT(message_of<UnsupportedError>([&] { unknown.compile(); }), HasSubstr("NoSuchOperator"));
}

TEST(Model, TakesAndGivesStrings) {
  const auto model = Model::from_bytes(model_bytes([](onnx::ModelProto&, GraphBuilder& g) {
                       g.input("a", TensorProto::STRING, {testing::kAny, 2}).input("b", TensorProto::STRING, {});
                       g.node("StringConcat", {"a", "b"}, {"y"});
                       g.output("y");
                     })).compile();
  const Strings joined = model.run({Strings{{"p", "q", "ü", ""}, {2, 2}}, Strings{{"!"}, {}}})[0].strings();
  EXPECT_THAT(joined.values, ElementsAre("p!", "q!", "ü!", "!"));
  EXPECT_THAT(joined.sizes, ElementsAre(2, 2));
  EXPECT_THAT(message_of<InputError>([&] { model.run({Strings{{"p"}, {1, 2}}, Strings{{"!"}, {}}}); }),
              HasSubstr("1 strings, and sizes for 2"));
}

TEST(Model, TakesAndGivesSequencesAndOptionals) {
  const auto model =
      Model::from_bytes(model_bytes([](onnx::ModelProto& proto, GraphBuilder& g) {
        auto* list = proto.mutable_graph()->add_input();
        list->set_name("list");
        list->mutable_type()->mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(
            TensorProto::FLOAT);
        auto* optional = proto.mutable_graph()->add_input();
        optional->set_name("optional");
        optional->mutable_type()->mutable_optional_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(
            TensorProto::FLOAT);
        g.input("x", TensorProto::FLOAT, {testing::kAny});
        g.node("SequenceInsert", {"list", "x"}, {"longer"});
        g.node("OptionalHasElement", {"optional"}, {"has"});
        g.node("Identity", {"optional"}, {"same"});
        g.output("longer").output("has").output("same");
      })).compile();
  const at::Tensor x = at::ones({2}), y = at::zeros({3});
  const Outputs with = model.run({Sequence{{y, y}}, x, x});
  const std::vector<Data>& longer = with["longer"].sequence();
  ASSERT_EQ(longer.size(), 3U);
  EXPECT_TRUE(at::equal(longer[2].tensor(), x));
  EXPECT_TRUE(with["has"].tensor().item<bool>());
  EXPECT_TRUE(at::equal(with["same"].tensor(), x));
  const Outputs without = model.run({Sequence{}, Data(), x});
  EXPECT_EQ(without["longer"].sequence().size(), 1U);
  EXPECT_FALSE(without["has"].tensor().item<bool>());
  EXPECT_TRUE(without["same"].absent());
  EXPECT_THAT(message_of<InputError>([&] { model.run({x, x, x}); }),
              HasSubstr("must be seq(tensor(float)), not tensor(float)"));
}

TEST(Model, TakesAndGivesMaps) {
  const auto model =
      Model::from_bytes(model_bytes([](onnx::ModelProto& proto, GraphBuilder& g) {
        proto.add_opset_import()->set_domain("ai.onnx.ml");
        proto.mutable_opset_import(2)->set_version(5);
        auto* map = proto.mutable_graph()->add_input();
        map->set_name("map");
        map->mutable_type()->mutable_map_type()->set_key_type(TensorProto::STRING);
        map->mutable_type()->mutable_map_type()->mutable_value_type()->mutable_tensor_type()->set_elem_type(
            TensorProto::FLOAT);
        g.input("scores", TensorProto::FLOAT, {1, 2});
        onnx::NodeProto& vectorizer = g.node("DictVectorizer", {"map"}, {"vector"});
        onnx::NodeProto& zip = g.node("ZipMap", {"scores"}, {"maps"});
        for (auto [node, name] :
             {std::pair(&vectorizer, "string_vocabulary"), std::pair(&zip, "classlabels_strings")}) {
          node->set_domain("ai.onnx.ml");
          auto* attribute = node->add_attribute();
          attribute->set_name(name);
          attribute->set_type(onnx::AttributeProto::STRINGS);
          attribute->add_strings("cat");
          attribute->add_strings("dog");
        }
        g.output("vector").output("maps");
      })).compile();
  const Outputs outputs =
      model.run({Map{Strings{{"dog"}, {1}}, at::tensor({3.0F})}, at::tensor({0.25F, 0.75F}).reshape({1, 2})});
  EXPECT_TRUE(at::equal(outputs["vector"].tensor(), at::tensor({0.0F, 3.0F}).reshape({1, 2})));
  const Map& zipped = outputs["maps"].sequence().at(0).map();
  EXPECT_THAT(std::get<Strings>(zipped.keys).values, ElementsAre("cat", "dog"));
  EXPECT_TRUE(at::equal(std::get<at::Tensor>(zipped.values), at::tensor({0.25F, 0.75F})));
}

// Makes a model that adds a weight of two elements, which lies in a file, to its input.
std::string with_external_data() {
  return model_bytes([](onnx::ModelProto& proto, GraphBuilder& g) {
    g.input("x", TensorProto::FLOAT, {2});
    g.node("Add", {"x", "w"}, {"y"});
    g.output("y");
    onnx::TensorProto& weight = *proto.mutable_graph()->add_initializer();
    weight.set_name("w");
    weight.set_data_type(TensorProto::FLOAT);
    weight.add_dims(2);
    weight.set_data_location(TensorProto::EXTERNAL);
    for (const auto& [key, value] : {std::pair("location", "weights.bin"), std::pair("offset", "4")}) {
      auto* const entry = weight.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    }
  });
}

TEST(Model, TakesExternalDataFromMemory) {
  const auto weights = std::make_shared<const std::vector<float>>(std::vector<float>{0, 1, 2});
  const std::string_view view(reinterpret_cast<const char*>(weights->data()), 3 * sizeof(float));
  const auto run = [](const ExternalReader& external) {
    const auto model = Model::from_bytes(with_external_data(), {}, external).compile();
    return model.run({at::zeros({2})})[0].tensor();
  };
  EXPECT_TRUE(at::equal(run(in_memory({{"./weights.bin", {view, weights}}})), at::tensor({1.0F, 2.0F})));
  const auto read = [&](const std::string& name, int64_t offset, int64_t length) -> std::optional<Bytes> {
    EXPECT_EQ(name, "weights.bin");
    return Bytes{view.substr(static_cast<size_t>(offset), static_cast<size_t>(length)), weights};
  };
  EXPECT_TRUE(at::equal(run(read), at::tensor({1.0F, 2.0F})));
  EXPECT_THAT(message_of<InvalidModelError>([&] { run(in_memory({{"weights.bin", {view.substr(0, 8), weights}}})); }),
              HasSubstr("8 bytes of weights.bin from 4 on, and 4 were given"));
  EXPECT_THAT(message_of<InvalidModelError>([&] { run({}); }), HasSubstr("without it (external)"));
}

TEST(Model, ThrowsErrorsAloneWithWhatIsBehindThemInside) {
  const ExternalReader fails = [](const std::string&, int64_t, int64_t) -> std::optional<Bytes> {
    throw std::out_of_range("no such page");
  };
  try {
    Model::from_bytes(with_external_data(), {}, fails).compile();
    FAIL() << "it was read";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "no such page");
    EXPECT_THROW(std::rethrow_if_nested(error), std::out_of_range);
  }
}

TEST(Model, KeepsElementTypes) {
  const auto identity = [](TensorProto::DataType type) {
    return Model::from_bytes(model_bytes([&](onnx::ModelProto&, GraphBuilder& g) {
             g.input("x", type, {testing::kAny});
             g.node("Identity", {"x"}, {"y"});
             g.output("y");
           }))
        .compile();
  };
  const at::Tensor numbers = longs({0, 1, 2, 7});
  for (const auto& [type, dtype] :
       {std::pair(TensorProto::BFLOAT16, at::kBFloat16), std::pair(TensorProto::FLOAT8E4M3FN, at::kFloat8_e4m3fn),
        std::pair(TensorProto::UINT16, at::kUInt16), std::pair(TensorProto::UINT64, at::kUInt64),
        std::pair(TensorProto::BOOL, at::kBool), std::pair(TensorProto::COMPLEX64, at::kComplexFloat),
        std::pair(TensorProto::UINT4, at::kByte), std::pair(TensorProto::INT4, at::kChar)}) {
    const at::Tensor x = numbers.to(dtype);
    const at::Tensor y = identity(type).run({x})[0].tensor();
    EXPECT_EQ(y.scalar_type(), dtype);
    EXPECT_TRUE(at::equal(y.view(at::kByte), x.view(at::kByte))) << TensorProto::DataType_Name(type);
  }
}

TEST(Model, RunsOnSeveralThreads) {
  const CompiledModel model = Model::from_bytes(two_outputs()).compile();
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (size_t i = 0; i < right.size(); ++i) {
    threads.emplace_back([&model, &right, i] {
      for (int64_t k = 0; k < 50; ++k) {
        const at::Tensor x = row(static_cast<int64_t>(i) * 100 + k);
        right[i] += at::equal(model.run({x})["z"].tensor(), -x - longs({10, 20, 30}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(right, ::testing::Each(50));
}

}  // namespace
}  // namespace onnxtorch
