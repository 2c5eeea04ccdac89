// The locks that let the child of a fork go on where its parent was (os.fork, multiprocessing's "fork", gunicorn
// --preload). Only the thread that forked is in the child, so that a lock which another thread held would never be
// given back, and what it guards might be half changed; and OpenMP's threads, which are not there, would be waited for.
#pragma once

#include <atomic>
#include <mutex>

namespace onnxtorch {

// A scope for which forks of other threads wait while one lives. They wait up to a second: a thread that holds one, or
// a mutex, for longer may itself be waiting for something that the forking thread has, such as Python's lock.
class __attribute__((visibility("default"))) NoFork {
 public:
  NoFork();
  ~NoFork();
  NoFork(const NoFork&) = delete;
  NoFork& operator=(const NoFork&) = delete;
};

// A mutex that no other thread holds when a process forks: the forking thread takes all that there are, and each
// process gives them back. To lock one costs what a std::mutex does.
class __attribute__((visibility("default"))) ForkSafeMutex {
 public:
  ForkSafeMutex();
  ~ForkSafeMutex();
  ForkSafeMutex(const ForkSafeMutex&) = delete;
  ForkSafeMutex& operator=(const ForkSafeMutex&) = delete;

  void lock() { mutex_.lock(); }
  bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// A std::call_once that no other thread is in the middle of when a process forks.
class Once {
 public:
  template <typename Make>
  void operator()(const Make& make) {
    if (done_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    if (done_.load(std::memory_order_relaxed)) return;
    make();
    done_.store(true, std::memory_order_release);
  }

 private:
  std::atomic<bool> done_ = false;
  ForkSafeMutex mutex_;
};

}  // namespace onnxtorch
