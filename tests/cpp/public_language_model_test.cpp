// Language models by the public interface, from the shared library.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx_torch/language_model.h>

#include <string>

#include "public_models.h"
#include "temporary_folder.h"

namespace onnxtorch {
namespace {

using onnx::TensorProto;
using ::testing::ElementsAre;
using testing::GraphBuilder;
using testing::kAny;
using testing::model_bytes;
using testing::set_int;
using testing::TemporaryFolder;

constexpr int64_t kWords = 5;

// Makes a model in which after each token comes the next number, after the last one 0. The cache has the logits of all
// tokens.
std::string counting_model() {
  return model_bytes([](onnx::ModelProto&, GraphBuilder& graph) {
    std::vector<int64_t> next(kWords * kWords);
    for (int64_t word = 0; word < kWords; ++word) next[static_cast<size_t>(word * kWords + (word + 1) % kWords)] = 1;
    graph.input("input_ids", TensorProto::INT64, {kAny, kAny})
        .input("past_0", TensorProto::FLOAT, {kAny, kAny, kWords})
        .ints("next", next, {kWords, kWords})
        .output("logits")
        .output("present_0");
    set_int(graph.node("Cast", {"next"}, {"table"}), "to", TensorProto::FLOAT);
    graph.node("Gather", {"table", "input_ids"}, {"logits"});
    set_int(graph.node("Concat", {"past_0", "logits"}, {"present_0"}), "axis", 1);
  });
}

LanguageModel loaded_counting_model() {
  const TemporaryFolder folder;
  return LanguageModel::load(folder.write("counting.onnx", counting_model()));
}

TEST(PublicLanguageModel, Generates) {
  const LanguageModel lm = loaded_counting_model();
  EXPECT_EQ(lm.layout().inputs.at("input_ids"), "input_ids");
  ASSERT_EQ(lm.layout().caches.size(), 1U);
  EXPECT_EQ(lm.layout().caches[0].sequence_axis, 1);
  EXPECT_THAT(lm.generate({.ids = {{1}}}, {.max_new_tokens = 6}), ElementsAre(ElementsAre(1, 2, 3, 4, 0, 1, 2)));
  EXPECT_THAT(lm.generate({.ids = {{1}, {0, 3}}}, {.max_new_tokens = 6, .eos_token_ids = {4}}),
              ElementsAre(ElementsAre(1, 2, 3, 4), ElementsAre(0, 3, 4)));
  EXPECT_THAT(lm.generate({.ids = {{1}}}, {.max_new_tokens = 3, .num_beams = 2}), ElementsAre(ElementsAre(1, 2, 3, 4)));
  const auto same = std::make_shared<const LanguageModel>(lm);
  EXPECT_THAT(lm.generate({.ids = {{1}}}, {.max_new_tokens = 6, .assistant_model = same}),
              ElementsAre(ElementsAre(1, 2, 3, 4, 0, 1, 2)));
}

TEST(PublicLanguageModel, StreamsAndIsCancelled) {
  const LanguageModel lm = loaded_counting_model();
  std::atomic<bool> cancel = false;
  Tokens streamed;
  const auto stream = [&](const std::vector<Tokens>& tokens) {
    streamed.push_back(tokens.at(0).at(0));
    cancel = streamed.size() == 3;
  };
  EXPECT_THROW(lm.generate({.ids = {{1}}}, {.max_new_tokens = 9, .cancel = &cancel}, stream), StoppedError);
  EXPECT_THAT(streamed, ElementsAre(2, 3, 4));
}

TEST(PublicLanguageModel, HasRoomForMaxLength) {
  const LanguageModel lm = loaded_counting_model();
  EXPECT_THAT(lm.generate({.ids = {{1}}}, {.max_new_tokens = 3, .max_length = 4}),
              ElementsAre(ElementsAre(1, 2, 3, 4)));
  EXPECT_THROW(lm.generate({.ids = {{1}}}, {.max_new_tokens = 4, .max_length = 4}), InputError);
  GenerationState state = lm.start({.ids = {{1, 2}}}, 3);
  EXPECT_EQ(state.max_length(), 3);
  state.append(at::tensor({int64_t{4}}).unsqueeze(0));
  EXPECT_THROW(state.append(at::tensor({int64_t{0}}).unsqueeze(0)), InputError);
}

TEST(PublicLanguageModel, JoinsStates) {
  const LanguageModel lm = loaded_counting_model();
  EXPECT_FALSE(lm.takes_lengths());
  const GenerationState pair = lm.start({.ids = {{1, 2}, {0, 3}}}), one = lm.start({.ids = {{3, 4}}});
  GenerationState joined = GenerationState::join({{&one, {0}}, {&pair, {1, 0}}});
  EXPECT_THAT(joined.tokens(), ElementsAre(ElementsAre(3, 4), ElementsAre(0, 3), ElementsAre(1, 2)));
  EXPECT_EQ(joined.append(at::tensor({int64_t{0}, int64_t{4}, int64_t{3}}).unsqueeze(1)).argmax(1)[1].item<int64_t>(),
            0);
  const GenerationState longer = lm.start({.ids = {{3, 4, 0}}});
  EXPECT_THROW(GenerationState::join({{&one, {0}}, {&longer, {0}}}), InputError);
}

TEST(PublicLanguageModel, StatesGoBackAndFork) {
  const LanguageModel lm = loaded_counting_model();
  GenerationState state = lm.start({.ids = {{1, 2}}});
  GenerationState fork = state.fork();
  EXPECT_EQ(state.append(at::tensor({int64_t{4}}).unsqueeze(0)).argmax().item<int64_t>(), 0);
  state.rewind(2);
  EXPECT_THAT(state.tokens(), ElementsAre(ElementsAre(1)));
  EXPECT_THAT(fork.tokens(), ElementsAre(ElementsAre(1, 2)));
  EXPECT_THROW(state.rewind(2), InputError);
  EXPECT_THROW(lm.generate({.ids = {}}), InputError);
  EXPECT_THROW(lm.generate({.ids = {{1}}}, {.do_sample = true, .temperature = 0}), InputError);
}

}  // namespace
}  // namespace onnxtorch
