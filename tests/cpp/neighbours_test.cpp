#include "base/neighbours.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>

#include "temporary_folder.h"

namespace onnxtorch {
namespace {

namespace fs = std::filesystem;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::Eq;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::SizeIs;

constexpr milliseconds kStep(10);

// Tells whether it is crowded after some time, in each step of which threads waited for as long.
bool after(Crowding& crowding, milliseconds time, nanoseconds waited) {
  bool crowded = false;
  for (milliseconds passed(0); passed < time; passed += kStep) crowded = crowding.after(kStep, waited);
  return crowded;
}

TEST(Crowding, IsNotWhereNothingWaits) {
  Crowding crowding;
  EXPECT_FALSE(after(crowding, seconds(10), nanoseconds(0)));
}

TEST(Crowding, BeginsSoonAfterLongWaits) {
  Crowding crowding;
  EXPECT_FALSE(crowding.after(kStep, milliseconds(6)));
  EXPECT_TRUE(crowding.after(kStep, milliseconds(8)));
}

TEST(Crowding, DoesNotBeginWithWhoComesAndGoes) {
  Crowding crowding;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(crowding.after(kStep, milliseconds(5)));
    EXPECT_FALSE(after(crowding, milliseconds(40), nanoseconds(0)));
  }
  EXPECT_FALSE(after(crowding, seconds(10), milliseconds(2)));
}

TEST(Crowding, LastsUntilLongWaitsHaveEnded) {
  Crowding crowding;
  EXPECT_TRUE(crowding.after(kStep, milliseconds(20)));
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(after(crowding, milliseconds(200), nanoseconds(0)));
    EXPECT_TRUE(crowding.after(kStep, milliseconds(2)));
  }
  EXPECT_FALSE(after(crowding, milliseconds(300), microseconds(500)));
}

TEST(Crowding, LastsLongerWhereItComesBackSoon) {
  Crowding crowding;
  for (const int hold : {250, 500, 1000, 2000, 2000}) {
    EXPECT_TRUE(crowding.after(kStep, milliseconds(20)));
    EXPECT_TRUE(after(crowding, milliseconds(hold) - kStep, nanoseconds(0)));
    EXPECT_FALSE(after(crowding, milliseconds(100), nanoseconds(0)));
  }
}

TEST(Crowding, IsShortAgainAfterALongQuiet) {
  Crowding crowding;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(crowding.after(kStep, milliseconds(20)));
    EXPECT_FALSE(after(crowding, milliseconds(300), nanoseconds(0)));
    EXPECT_FALSE(after(crowding, seconds(4), nanoseconds(0)));
  }
}

TEST(Crowding, TakesNoTimeInWhichTheProcessWasStopped) {
  Crowding crowding;
  EXPECT_TRUE(crowding.after(kStep, milliseconds(20)));
  EXPECT_TRUE(crowding.after(seconds(100), nanoseconds(0)));
}

// The files as the kernel shows them, in a folder of their own.
class LongWaitsOfThreads : public ::testing::Test {
 protected:
  void write(int thread, nanoseconds waited, int count) const {
    threads_.write(fs::path(std::to_string(thread)) / "schedstat",
                   "123456789 " + std::to_string(waited.count()) + ' ' + std::to_string(count) + '\n');
  }

  testing::TemporaryFolder threads_;
  LongWaits waits_{threads_.path()};
};

TEST_F(LongWaitsOfThreads, AreNoneWithoutFiles) { EXPECT_THAT(waits_.take(), Eq(std::nullopt)); }

TEST_F(LongWaitsOfThreads, AreThoseSinceTheLastCall) {
  write(1, seconds(5), 7);
  write(2, seconds(3), 8);
  EXPECT_THAT(waits_.take(), Optional(nanoseconds(0)));
  write(1, seconds(5) + milliseconds(4), 7);
  write(2, seconds(3) + milliseconds(2), 8);
  EXPECT_THAT(waits_.take(), Optional(milliseconds(6)));
  EXPECT_THAT(waits_.take(), Optional(nanoseconds(0)));
}

TEST_F(LongWaitsOfThreads, AreThoseBeyondWhatWakingTakes) {
  write(1, seconds(0), 0);
  write(2, seconds(0), 0);
  waits_.take();
  write(1, milliseconds(40), 1000);
  write(2, milliseconds(5), 20);
  EXPECT_THAT(waits_.take(), Optional(milliseconds(4)));
}

TEST_F(LongWaitsOfThreads, KnowThreadsThatComeAndGo) {
  write(1, seconds(1), 0);
  write(2, seconds(1), 0);
  waits_.take();
  fs::remove_all(threads_.path() / "2");
  write(3, milliseconds(3), 0);
  EXPECT_THAT(waits_.take(), Optional(milliseconds(3)));
}

TEST_F(LongWaitsOfThreads, AreNotTheCallersOwn) {
  write(1, seconds(0), 0);
  write(gettid(), seconds(0), 0);
  waits_.take();
  write(gettid(), seconds(1), 0);
  EXPECT_THAT(waits_.take(), Optional(nanoseconds(0)));
}

// The process's threads; for a moment, those that have ended and were joined are among them.
std::set<std::string> threads_of_process() {
  std::set<std::string> threads;
  for (const auto& thread : fs::directory_iterator("/proc/self/task")) threads.insert(thread.path().filename());
  return threads;
}

std::set<std::string> threads_begun_since(const std::set<std::string>& before) {
  std::set<std::string> begun;
  std::ranges::set_difference(threads_of_process(), before, std::inserter(begun, begun.end()));
  return begun;
}

TEST(ShortWaits, HoldMoreThreadsThanThereAreProcessors) {
  std::thread([] {
    const std::set<std::string> before = threads_of_process();
    {
      const ShortWaits held;
      EXPECT_EQ(held.threads(), omp_get_num_procs() + 1);
      EXPECT_THAT(threads_begun_since(before), SizeIs(omp_get_num_procs()));
    }
    for (int i = 0; i < 1000 && !threads_begun_since(before).empty(); ++i) std::this_thread::sleep_for(milliseconds(1));
    EXPECT_THAT(threads_begun_since(before), IsEmpty());
  }).join();
}

// The test runs in a process of its own, which has as many threads as a run begins.
TEST(WatchedRun, HasOneThreadWhichEndsBeforeAFork) {
  if (omp_get_num_procs() == 1) GTEST_SKIP() << "nothing is watched on one processor";
  const auto named = [] {
    int count = 0;
    for (const auto& thread : fs::directory_iterator("/proc/self/task")) {
      std::string name;
      std::ifstream(thread.path() / "comm") >> name;
      count += name == "neighbours";
    }
    return count;
  };
  const auto runs = [&] {
    for (int i = 0; i < 3; ++i) const WatchedRun run;
    for (int i = 0; i < 1000 && named() == 0; ++i) std::this_thread::sleep_for(milliseconds(1));
    return named() >= 1;
  };
  omp_set_num_threads(2);
  EXPECT_TRUE(runs());
  const pid_t child = fork();
  if (child == 0) _exit(named() == 0 && runs() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(runs());
}

TEST(WatchedRun, IsNoneOfOneThread) {
  std::thread([] {
    omp_set_num_threads(1);
    const std::set<std::string> before = threads_of_process();
    const WatchedRun run;
    EXPECT_THAT(threads_begun_since(before), IsEmpty());
  }).join();
}

}  // namespace
}  // namespace onnxtorch
