#include "base/thread_limit.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

namespace onnxtorch {
namespace {

TEST(ThreadLimit, HoldsForItsThreadAndItsLifeOnly) {
  const int before = at::get_num_threads();
  {
    const ThreadLimit limit(before + 3);
    EXPECT_EQ(at::get_num_threads(), before + 3);
    std::thread([&] { EXPECT_EQ(at::get_num_threads(), before); }).join();
    const ThreadLimit inner(1);
    EXPECT_EQ(at::get_num_threads(), 1);
  }
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(ThreadLimit, IsNoneWhereZero) {
  const ThreadLimit outer(3);
  const ThreadLimit none(0);
  EXPECT_EQ(at::get_num_threads(), 3);
}

TEST(ThreadLimit, ReachesAThreadThatIsNewToATen) {
  std::thread([] {
    const ThreadLimit limit(5);
    EXPECT_EQ(at::get_num_threads(), 5);
  }).join();
}

}  // namespace
}  // namespace onnxtorch
