// The way in which threads wait for one another while other processes, or other threads, keep the processors busy.
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

// A state in which others keep the processors busy, as long waits tell. It begins soon after they do, and ends when
// there has been none for a while, which is short at first (a process that loads beside us) and longer each time they
// come back soon.
class __attribute__((visibility("default"))) Crowding {
 public:
  using Time = std::chrono::nanoseconds;

  // Tells whether it is crowded now. `passed` is the time since the last call, in which all threads together have
  // `waited`.
  bool after(Time passed, Time waited);

 private:
  bool crowded_ = false;
  Time unusual_{0};  // the time that was waited of late, beyond what is usual
  Time quiet_{0};    // the time since the last long wait
  Time hold_{0};     // the time for which it has to be quiet
  Time since_{0};    // the time since it began to be crowded, or ended
};

// The time that the process's threads have waited for a processor, while they could have run, beyond what it takes to
// wake them.
class __attribute__((visibility("default"))) LongWaits {
 public:
  using Time = std::chrono::nanoseconds;

  explicit LongWaits(std::filesystem::path threads = "/proc/self/task") : threads_(std::move(threads)) {}

  // Gives the time waited since the last call, of all threads together but for the one that asks; none where the system
  // does not tell.
  std::optional<Time> take();

 private:
  struct Waits {
    int64_t nanoseconds, count;
  };

  std::filesystem::path threads_;
  std::unordered_map<int, Waits> before_;  // the waits of each thread
};

// A scope in which threads of OpenMP spin no longer than a moment where they wait. It belongs to a thread that has no
// other parallel regions.
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
