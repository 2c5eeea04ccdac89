// The guard that stops a run which takes more time, memory or iterations than it may, or which its caller stops.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/interruption.h"
#include "base/stopwatch.h"
#include "onnx_torch/options.h"

namespace onnxtorch {

class MemoryCount;
class PrepareGuard;

// A watch over this thread's run while it lives. onnx_torch::check_node, which stands in front of each node,
// onnx_torch::check_run, which does in each iteration, nodes that take long, and each allocation ask it, and get an
// exception where the run must stop.
class __attribute__((visibility("default"))) RunGuard {
 public:
  // Throws where torch's profiler counts the memory already. Keeps the index of the node that the run is at in
  // `at_node`.
  RunGuard(const Limits& limits, const StopFlag* stop, std::atomic<int64_t>* at_node = nullptr);
  ~RunGuard();
  RunGuard(const RunGuard&) = delete;
  RunGuard& operator=(const RunGuard&) = delete;

  void check();
  void begin_node(int64_t node);
  void check_iteration(int64_t iteration);            // that of a loop; the first is 0
  bool is_over() const;                               // whether check() would throw for the time or the flag
  std::string reason() const;                         // why it stopped the run; empty: it did not
  int64_t iterations() const { return iterations_; }  // those of the loop that took most

 private:
  [[noreturn]] void stop(std::string reason);
  bool is_late() const;

  double seconds_, max_iterations_;
  int64_t iterations_ = 0;
  Stopwatch run_time_;
  const StopFlag* stop_;
  std::atomic<int64_t>* at_node_;
  std::string reason_;
  std::shared_ptr<MemoryCount> memory_;  // none: memory has no limit
  c10::DebugInfoGuard counting_;
  RunGuard* around_;  // the guard of the run that this one is a part of
};

// Says why a run is stopped.
__attribute__((visibility("default"))) std::string takes_longer_than(double seconds);

// A watch for a node that takes long to ask, in a run or where it is folded while a model is prepared.
class __attribute__((visibility("default"))) RunWatch {
 public:
  RunWatch();            // begins in the thread of the run
  bool is_over() const;  // in any thread; whoever asks leaves off, and check() throws afterwards
  void check() const;    // in the thread of the run; throws if it is to stop

 private:
  RunGuard* guard_;
  const PrepareGuard* preparation_;
  mutable std::atomic<bool> interrupted_ = false;  // the run's thread alone can find out
};

// Counts memory that no allocator of torch's gives, and that the run holds to its end.
__attribute__((visibility("default"))) void count_memory(size_t bytes);

// A scope in which this thread gets an exception instead of tensors that have more bytes than so many, all together. It
// does nothing where the memory is counted already.
class __attribute__((visibility("default"))) MemoryScope {
 public:
  explicit MemoryScope(double most);

 private:
  std::optional<c10::DebugInfoGuard> counting_;
};

}  // namespace onnxtorch
