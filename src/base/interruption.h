// Ctrl-C: whoever uses the process may interrupt the work of one thread, the one that is told of signals, and a thread
// may stop the work of another.
#pragma once

#include <atomic>
#include <exception>
#include <string>

namespace onnxtorch {

// A flag that any thread may set, to stop the work that was given it.
struct StopFlag {
  std::atomic<bool> set = false;
};

// A scope in which this thread's work can be interrupted.
class __attribute__((visibility("default"))) Interruptible {
 public:
  // `ask` is called by this thread, in the midst of its work, when a signal has come. It throws if the work is to stop.
  explicit Interruptible(void (*ask)());
  // The work stops once the flag is set, and no signal stops it.
  explicit Interruptible(const StopFlag& stop);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  void check();
  bool is_stopped() const { return stop_ && stop_->set; }
  // Throws what `check` threw, if it did: who ran the work may have caught that, or put another exception in its place.
  void rethrow() const;
  bool interrupted() const { return thrown_ != nullptr; }

 private:
  void (*const ask_)();
  const StopFlag* const stop_;
  std::exception_ptr thrown_;
  Interruptible* const around_;
};

// Tells that a signal has come. A handler of signals may call it, in any thread.
__attribute__((visibility("default"))) void interrupt() noexcept;

// Asks whether this thread's work is to stop, and throws if so. Called for each node that is translated, for each step
// of a plan, for each iteration of a loop, for each large intermediate result and, once a signal has come, whenever
// memory for a tensor is allocated. Until then it costs next to nothing.
__attribute__((visibility("default"))) void check_interruption();

// Tells whether this thread's work can be interrupted.
__attribute__((visibility("default"))) bool is_interruptible();

// Says that whoever began the work has stopped it.
__attribute__((visibility("default"))) std::string stopped_by_caller();

// Tells whether an interruption has made the thread's work stop.
__attribute__((visibility("default"))) bool interrupted();

}  // namespace onnxtorch
