// How threads wait for one another while other processes, or other threads, keep the processors busy.
//
// libgomp's threads spin where they wait, for milliseconds, before they sleep. That is fastest on processors of one's
// own. Where the thread that is waited for was put aside for another process, it takes from it the very processor that
// it needs: each parallel region of a run may then take milliseconds. libgomp spins for a moment only while it manages
// more threads than there are processors. So while runs go on, a thread reads every few milliseconds how long the
// process's threads have waited for a processor, and holds threads that do nothing as long as that is long.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <unordered_map>

namespace onnxtorch {

// Whether others keep the processors busy, as long waits tell: soon after they begin, and until there has been none for
// a while, which is short at first (a process that loads beside us) and longer each time they come back soon.
class __attribute__((visibility("default"))) Crowding {
 public:
  using Time = std::chrono::nanoseconds;

  // `passed` since the last call, in which the threads have waited for so long, all together.
  bool after(Time passed, Time waited);

 private:
  bool crowded_ = false;
  Time unusual_{0};  // what was waited of late, beyond what is usual
  Time quiet_{0};    // since the last long wait
  Time hold_{0};     // how long it has to be quiet
  Time since_{0};    // since it began to be crowded, or ended
};

// How long the process's threads have waited for a processor, while they could have run, beyond what it takes to wake
// them.
class __attribute__((visibility("default"))) LongWaits {
 public:
  using Time = std::chrono::nanoseconds;

  explicit LongWaits(std::filesystem::path threads = "/proc/self/task") : threads_(std::move(threads)) {}

  // Since the last call, all threads together but for the one that asks; none where the system does not tell.
  std::optional<Time> take();

 private:
  struct Waits {
    int64_t nanoseconds, count;
  };

  std::filesystem::path threads_;
  std::unordered_map<int, Waits> before_;  // of each thread
};

// While one lives, threads of OpenMP spin for a moment only where they wait. It belongs to a thread that has no other
// parallel regions.
class __attribute__((visibility("default"))) ShortWaits {
 public:
  ShortWaits();
  ~ShortWaits();
  ShortWaits(const ShortWaits&) = delete;
  ShortWaits& operator=(const ShortWaits&) = delete;

  int threads() const { return threads_; }

 private:
  int threads_ = 0;
};

// A run that goes on, with as many threads as this thread has. Runs with one thread, those on one processor, and those
// of a process whose environment says how to wait (OMP_WAIT_POLICY, GOMP_SPINCOUNT) are not watched.
class __attribute__((visibility("default"))) WatchedRun {
 public:
  WatchedRun();
  ~WatchedRun();
  WatchedRun(const WatchedRun&) = delete;
  WatchedRun& operator=(const WatchedRun&) = delete;

 private:
  const bool watched_;
};

// Tells the least work that another thread is woken for, in elements as parallel_for counts them: as many as ATen's
// operators take, or more while threads sleep where they wait.
int64_t worth_a_thread();

}  // namespace onnxtorch
