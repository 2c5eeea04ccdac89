#include "base/fork_safe.h"

#include <omp.h>
#include <pthread.h>

#include <chrono>
#include <new>
#include <shared_mutex>
#include <thread>
#include <unordered_set>
#include <vector>

namespace onnxtorch {
namespace {

constexpr std::chrono::seconds kLongestWait(1);
constexpr std::chrono::microseconds kBetweenTries(200);

// All the mutexes that there are. The object outlives the statics that have one.
struct Mutexes {
  std::mutex mutex;
  std::unordered_set<ForkSafeMutex*> all;
};

Mutexes& mutexes() {
  static auto* const instance = new Mutexes;
  return *instance;
}

std::shared_timed_mutex gate;  // shared by the threads that a fork must not leave behind, held alone by a fork
thread_local int entered = 0;  // how often this thread is in a NoFork

// The locks that a fork holds, from before to after it.
class Held {
 public:
  // Takes everything, or, after the longest wait, as much as there is to be had. Between two tries it holds nothing, as
  // whoever has a mutex may need another one to go on.
  void take() {
    const auto end = std::chrono::steady_clock::now() + kLongestWait;
    while (!try_all() && std::chrono::steady_clock::now() < end) {
      give_back();
      std::this_thread::sleep_for(kBetweenTries);
    }
  }

  void give_back() {
    for (ForkSafeMutex* const one : taken_) one->unlock();
    taken_.clear();
    mutexes().mutex.unlock();
    if (closed_) gate.unlock();
    closed_ = false;
  }

  // Gives everything back in the child. The gate is made anew, as it still counts threads that are not in the child.
  void give_back_in_child() {
    new (&gate) std::shared_timed_mutex;
    if (entered > 0) gate.lock_shared();
    closed_ = false;
    give_back();
  }

 private:
  bool try_all() {
    closed_ = entered == 0 && gate.try_lock();
    mutexes().mutex.lock();
    for (ForkSafeMutex* const one : mutexes().all) {
      if (one->try_lock()) taken_.push_back(one);
    }
    return (closed_ || entered > 0) && taken_.size() == mutexes().all.size();
  }

  bool closed_ = false;
  std::vector<ForkSafeMutex*> taken_;
};

Held& held() {
  thread_local Held instance;
  return instance;
}

// Prepares for a fork. OpenMP keeps the threads that a thread has started for the next parallel region of that thread,
// which would wait for them in the child. They end here, and each process starts others when it needs them. Inside of a
// parallel region OpenMP pauses nothing.
void before_fork() {
  held().take();
  omp_pause_resource_all(omp_pause_soft);
}

[[maybe_unused]] const int registered =
    pthread_atfork(before_fork, [] { held().give_back(); }, [] { held().give_back_in_child(); });

}  // namespace

NoFork::NoFork() {
  if (entered++ == 0) gate.lock_shared();
}

NoFork::~NoFork() {
  if (--entered == 0) gate.unlock_shared();
}

ForkSafeMutex::ForkSafeMutex() {
  const std::lock_guard lock(mutexes().mutex);
  mutexes().all.insert(this);
}

ForkSafeMutex::~ForkSafeMutex() {
  const std::lock_guard lock(mutexes().mutex);
  mutexes().all.erase(this);
}

}  // namespace onnxtorch
