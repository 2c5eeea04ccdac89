// Tests of where the intermediate values of a plan lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/plan/lifetimes.h"

namespace onnxtorch {
namespace {

using testing::ElementsAre;

// A plan of kernels that take memory alone.
class PlanBuilder {
 public:
  size_t input(int64_t size) { return add({.kind = Buffer::Kind::Input}, size); }

  // Adds a step that gives a tensor of so many bytes, which may lie over its first argument.
  size_t step(const std::vector<size_t>& arguments, int64_t size, bool over = false) {
    const size_t result = add({}, size);
    std::vector<PlannedPlace> places;
    for (const size_t slot : arguments) places.push_back({plan.slots[slot].form.buffer, 0});
    places.push_back({plan.slots[result].form.buffer, 0});
    std::vector<PlannedCall::Over> pairs;
    if (over) pairs.push_back({.result = arguments.size(), .argument = 0});
    plan.steps.push_back({Step::Planned{planned([](auto) {}, pairs), places}, arguments, {result}});
    return result;
  }

  Buffer& buffer(size_t slot) { return plan.buffers[plan.slots[slot].form.buffer]; }

  Plan plan;

 private:
  size_t add(Buffer buffer, int64_t size) {
    buffer.bytes = size;
    plan.buffers.push_back(std::move(buffer));
    Slot slot{.kind = Slot::Kind::Tensor};
    slot.form = {.buffer = plan.buffers.size() - 1, .sizes = {size}, .strides = {1}, .type = c10::kByte};
    plan.slots.push_back(std::move(slot));
    return plan.slots.size() - 1;
  }
};

TEST(Plan, AValueTakesTheMemoryOfOneThatNobodyNeeds) {
  PlanBuilder b;
  const size_t x = b.input(64), first = b.step({x}, 64), second = b.step({first}, 64), third = b.step({second}, 64);
  b.plan.results = {b.step({third}, 64)};
  arrange(b.plan);
  EXPECT_EQ(b.buffer(first).offset, b.buffer(third).offset);
  EXPECT_NE(b.buffer(first).offset, b.buffer(second).offset);
  EXPECT_EQ(b.plan.arena_bytes, 128);
  EXPECT_EQ(b.buffer(b.plan.results[0]).kind, Buffer::Kind::Result);
}

TEST(Plan, AResultMayLieOverItsOperand) {
  PlanBuilder b;
  const size_t x = b.input(64), first = b.step({x}, 64), over = b.step({first}, 64, true);
  b.plan.results = {b.step({over}, 64)};
  arrange(b.plan);
  EXPECT_EQ(b.buffer(first).offset, b.buffer(over).offset);
  EXPECT_EQ(b.plan.arena_bytes, 64);
}

TEST(Plan, NotOverAnOperandThatIsNeededLaterOrGivenTwice) {
  PlanBuilder b;
  const size_t x = b.input(64), first = b.step({x}, 64), second = b.step({first}, 64, true);
  const size_t third = b.step({first, second}, 64), twice = b.step({third, third}, 64, true);
  b.plan.results = {b.step({twice}, 64)};
  arrange(b.plan);
  EXPECT_NE(b.buffer(first).offset, b.buffer(second).offset);
  EXPECT_NE(b.buffer(third).offset, b.buffer(twice).offset);
}

TEST(Plan, AResultThatIsTwoOutputsIsGivenAwayOnce) {
  PlanBuilder b;
  const size_t y = b.step({b.input(8)}, 8);
  b.plan.results = {y, y};
  arrange(b.plan);
  EXPECT_EQ(b.buffer(y).result, std::optional<size_t>(0));
}

// Random programs: whatever is needed at the same time lies apart.
TEST(Plan, ValuesThatAreNeededTogetherLieApart) {
  uint32_t number = 0;
  const auto random = [&] { return (number = number * 1'664'525 + 1'013'904'223) >> 16; };
  for (int round = 0; round < 200; ++round) {
    PlanBuilder b;
    std::vector<size_t> values{b.input(100)};
    for (int i = 0; i < 40; ++i) {
      std::vector<size_t> arguments;
      for (size_t k = 0; k <= random() % 3; ++k) {
        const size_t back = std::min<size_t>(values.size(), 1 + random() % 8);
        arguments.push_back(values[values.size() - back]);
      }
      values.push_back(b.step(arguments, 1 + static_cast<int64_t>(random() % 1000), random() % 2 == 0));
    }
    b.plan.results = {values.back()};
    arrange(b.plan);
    // The first step that fills each value, and the last one that reads it.
    std::vector<std::pair<size_t, size_t>> lives(b.plan.slots.size(), {SIZE_MAX, 0});
    for (size_t i = 0; i < b.plan.steps.size(); ++i) {
      lives[b.plan.steps[i].results[0]] = {i, i};
      for (const size_t slot : b.plan.steps[i].arguments) lives[slot].second = i;
    }
    size_t end = 0;
    for (size_t a = 0; a < lives.size(); ++a) {
      if (b.buffer(a).kind != Buffer::Kind::Arena) continue;
      end = std::max(end, b.buffer(a).offset + b.buffer(a).bytes);
      for (size_t c = 0; c < a; ++c) {
        if (b.buffer(c).kind != Buffer::Kind::Arena) continue;
        // The one is read while or after the other is filled; where they meet in one step, it may be over the other.
        const bool together = lives[a].first < lives[c].second && lives[c].first < lives[a].second;
        const bool apart = b.buffer(a).offset + b.buffer(a).bytes <= b.buffer(c).offset ||
                           b.buffer(c).offset + b.buffer(c).bytes <= b.buffer(a).offset;
        EXPECT_TRUE(apart || !together) << "round " << round << ": " << a << " and " << c;
      }
    }
    EXPECT_LE(end, b.plan.arena_bytes);
  }
}

TEST(Plan, PlannersAreAskedOneAfterAnother) {
  static std::vector<int> asked;
  register_planner("onnx_torch::plan_test", [](const PlannedOperands&) -> std::unique_ptr<PlannedCall> {
    asked.push_back(1);
    return {};
  });
  register_planner("onnx_torch::plan_test", [](const PlannedOperands&) {
    asked.push_back(2);
    return planned([](auto) {});
  });
  const auto name = c10::Symbol::fromQualString("onnx_torch::plan_test");
  EXPECT_TRUE(plan_call(name, {}));
  EXPECT_THAT(asked, ElementsAre(1, 2));
  EXPECT_FALSE(plan_call(c10::Symbol::fromQualString("onnx_torch::no_plan_test"), {}));
}

}  // namespace
}  // namespace onnxtorch
