#include "base/interruption.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <thread>

namespace onnxtorch {
namespace {

void do_in_another_thread(const std::function<void()>& work) { std::thread(work).join(); }

TEST(Interruption, AFlagStopsTheWorkOfItsThread) {
  StopFlag stop;
  const Interruptible interruptible(stop);
  EXPECT_NO_THROW(check_interruption());
  EXPECT_FALSE(interrupted());
  do_in_another_thread([&] { stop.set = true; });
  EXPECT_THROW(check_interruption(), std::runtime_error);
  EXPECT_TRUE(interrupted());
  EXPECT_THROW(check_interruption(), std::runtime_error);  // whoever catches it and goes on is stopped again
}

TEST(Interruption, AFlagStopsNoOtherThread) {
  StopFlag stop;
  const Interruptible interruptible(stop);
  stop.set = true;
  do_in_another_thread([] { EXPECT_NO_THROW(check_interruption()); });
}

void go_on() {}
void stop_work() { throw std::domain_error("a signal"); }

TEST(Interruption, ASignalStopsTheThreadThatIsToldOfSignals) {
  const Interruptible interruptible(stop_work);
  EXPECT_NO_THROW(check_interruption());
  interrupt();
  EXPECT_THROW(check_interruption(), std::domain_error);
}

TEST(Interruption, ASignalStopsTheThreadWhenItAllocates) {
  const Interruptible interruptible(stop_work);
  interrupt();
  EXPECT_THROW(at::empty({8}), std::domain_error);
}

TEST(Interruption, ASignalIsLeftToTheThreadThatIsToldOfSignals) {
  const Interruptible interruptible(stop_work);
  interrupt();
  do_in_another_thread([] {
    StopFlag stop;
    const Interruptible other(stop);
    EXPECT_NO_THROW(check_interruption());
  });
  EXPECT_THROW(check_interruption(), std::domain_error);
}

TEST(Interruption, WhoAsksMayGoOn) {
  const Interruptible interruptible(go_on);
  interrupt();
  EXPECT_NO_THROW(check_interruption());
  EXPECT_FALSE(interrupted());
}

}  // namespace
}  // namespace onnxtorch
