#include "kernels/fork_safe.h"

#include <omp.h>
#include <pthread.h>

#include <chrono>
#include <new>
#include <shared_mutex>

namespace onnxtorch {
namespace {

constexpr std::chrono::seconds kLongestWait(1);

std::shared_timed_mutex gate;      // shared by the threads that a fork must not leave behind, held alone by a fork
thread_local int entered = 0;      // how often this thread has entered
thread_local bool closed = false;  // whether this thread holds the gate alone

void enter() {
  if (entered++ == 0) gate.lock_shared();
}

void leave() {
  if (--entered == 0) gate.unlock_shared();
}

// OpenMP keeps the threads that a thread has started for the next parallel region of that thread, which would wait for
// them in the child. They end here, and each process starts others when it needs them. Inside of a parallel region
// OpenMP pauses nothing.
void before_fork() {
  closed = entered == 0 && gate.try_lock_for(kLongestWait);
  omp_pause_resource_all(omp_pause_soft);
}

void after_fork_in_parent() {
  if (closed) gate.unlock();
  closed = false;
}

// The gate still counts threads that are not in the child.
void after_fork_in_child() {
  new (&gate) std::shared_timed_mutex;
  if (entered > 0) gate.lock_shared();
  closed = false;
}

[[maybe_unused]] const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

}  // namespace

NoFork::NoFork() { enter(); }
NoFork::~NoFork() { leave(); }

void ForkSafeMutex::lock() {
  enter();
  mutex_.lock();
}

void ForkSafeMutex::unlock() {
  mutex_.unlock();
  leave();
}

}  // namespace onnxtorch
