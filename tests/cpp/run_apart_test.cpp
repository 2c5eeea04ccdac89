#include "base/run_apart.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <thread>

namespace onnxtorch {
namespace {

TEST(RunApart, IsDoneInAnotherThread) {
  std::thread::id id;
  EXPECT_TRUE(run_apart([&] { id = std::this_thread::get_id(); }, [] { return true; }));
  EXPECT_NE(id, std::this_thread::get_id());
}

TEST(RunApart, HasTheSettingsOfWhoWaits) {
  const c10::InferenceMode inference;
  bool is_inference = false;
  run_apart([&] { is_inference = c10::InferenceMode::is_enabled(); }, [] { return true; });
  EXPECT_TRUE(is_inference);
}

// Work that goes on until it is told that it may end.
struct Held {
  std::promise<void> end;
  std::promise<void> ended;
};

TEST(RunApart, IsLeftWhereNobodyWaits) {
  const auto held = std::make_shared<Held>();
  int asked = 0;
  EXPECT_FALSE(run_apart(
      [held] {
        held->end.get_future().wait();
        held->ended.set_value();
      },
      [&] { return ++asked < 3; }));
  EXPECT_EQ(asked, 3);
  held->end.set_value();
  held->ended.get_future().wait();
}

TEST(RunApart, IsLeftWhereWaitingThrows) {
  const auto held = std::make_shared<Held>();
  EXPECT_THROW(run_apart([held] { held->end.get_future().wait(); }, []() -> bool { throw std::runtime_error("no"); }),
               std::runtime_error);
  held->end.set_value();
}

TEST(RunApart, LetsGoWhatTheWorkHeldBeforeItIsDone) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  run_apart([held = std::move(held)] {}, [] { return true; });
  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace onnxtorch
