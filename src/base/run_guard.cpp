// The guard that may stop a run, for its caller, its time or its memory. A model is translated with these operators in
// front of each of its nodes, and of each iteration.
#include "base/run_guard.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "base/prepare_guard.h"

namespace onnxtorch {
namespace {

using c10::DebugInfoKind;

thread_local RunGuard* guard = nullptr;

void check_run() { RunWatch().check(); }

void check_node(int64_t node) {
  if (guard) guard->begin_node(node);
  check_run();
}

void check_iteration(int64_t iteration) {
  if (guard) guard->check_iteration(iteration);
}

std::string number(double value) {
  std::ostringstream text;
  text.precision(15);
  text << value;
  return text.str();
}

}  // namespace

// The memory of tensors that one run has in use. Allocators report to it, on other threads too where the run
// differentiates.
class MemoryCount final : public c10::MemoryReportingInfoBase {
 public:
  explicit MemoryCount(double most) : most_(most) {}

  void reportMemoryUsage(void* memory, int64_t size, size_t, size_t, c10::Device device) override {
    if (size < 0) {
      released(memory);
    } else if (!taken(memory, size) && device.is_cpu()) {
      c10::GetCPUAllocator()->raw_deallocate(memory);  // the exception keeps it from whoever asked for it
      check();
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  void check() const {
    if (const std::string why = reason(); !why.empty()) throw std::runtime_error(why);
  }

  // Counts memory for good, unlike what an allocator gives.
  void count(int64_t size) {
    if (!taken(nullptr, size)) check();
  }

 private:
  bool taken(void* memory, int64_t size) {
    const std::lock_guard lock(mutex_);
    if (used_ + static_cast<double>(size) > most_) {
      reason_ = "the run uses " + number(used_) + " bytes and needs " + std::to_string(size) +
                " more, but the option limits allows it " + number(most_) +
                " (memory); allow more if you trust the model with it";
      return false;
    }
    used_ += static_cast<double>(size);
    if (memory) sizes_[memory] = size;
    return true;
  }

  void released(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(memory);
    if (found == sizes_.end()) return;  // it was there before the run
    used_ -= static_cast<double>(found->second);
    sizes_.erase(found);
  }

  const double most_;
  mutable std::mutex mutex_;
  double used_ = 0;
  std::unordered_map<void*, int64_t> sizes_;
  std::string reason_;
};

namespace {

std::shared_ptr<MemoryCount> memory_count(double most) {
  if (std::isinf(most)) return nullptr;
  const c10::DebugInfoBase* other = c10::ThreadLocalDebugInfo::get(DebugInfoKind::PROFILER_STATE);
  if (other && !dynamic_cast<const MemoryCount*>(other)) {
    throw std::runtime_error(
        "torch's profiler is on in this thread, and the memory of the option limits cannot be "
        "counted beside it; leave out one of them");
  }
  return std::make_shared<MemoryCount>(most);
}

}  // namespace

RunGuard::RunGuard(const Limits& limits, const StopFlag* stop, std::atomic<int64_t>* at_node)
    : seconds_(limits.seconds),
      max_iterations_(limits.max_iterations),
      stop_(stop),
      at_node_(at_node),
      memory_(memory_count(limits.memory)),
      counting_(DebugInfoKind::PROFILER_STATE, memory_),
      around_(std::exchange(guard, this)) {}

RunGuard::~RunGuard() { guard = around_; }

void RunGuard::stop(std::string reason) {
  reason_ = std::move(reason);
  throw std::runtime_error(reason_);
}

bool RunGuard::is_late() const { return run_time_.seconds() > seconds_; }

bool RunGuard::is_over() const { return (stop_ && stop_->set) || is_late(); }

void RunGuard::check() {
  if (stop_ && stop_->set) stop(stopped_by_caller());
  if (is_late()) stop(takes_longer_than(seconds_));
  if (memory_) memory_->check();
}

void RunGuard::begin_node(int64_t node) {
  if (at_node_) *at_node_ = node;
}

void RunGuard::check_iteration(int64_t iteration) {
  iterations_ = std::max(iterations_, iteration + 1);
  if (static_cast<double>(iteration) >= max_iterations_) {
    stop("a loop takes more than the " + number(max_iterations_) +
         " iterations that the option limits allows it (max_iterations); allow more if you trust the model with it");
  }
  check();
}

std::string takes_longer_than(double seconds) {
  return "the run takes longer than the " + number(seconds) +
         " seconds that the option limits allows it; allow more if you trust the model with it";
}

RunWatch::RunWatch() : guard_(guard), preparation_(guard_of_preparation()) {}

bool RunWatch::is_over() const {
  try {
    check_interruption();
  } catch (...) {
    interrupted_ = true;
  }
  return interrupted_ || (guard_ && guard_->is_over()) || (preparation_ && preparation_->is_over());
}

void RunWatch::check() const {
  check_interruption();
  if (guard_) guard_->check();
  if (preparation_) preparation_->check();
}

void count_memory(size_t bytes) {
  auto* const count = dynamic_cast<MemoryCount*>(c10::ThreadLocalDebugInfo::get(DebugInfoKind::PROFILER_STATE));
  if (count) count->count(static_cast<int64_t>(bytes));
}

MemoryScope::MemoryScope(double most) {
  if (std::isinf(most) || c10::ThreadLocalDebugInfo::get(DebugInfoKind::PROFILER_STATE)) return;
  counting_.emplace(DebugInfoKind::PROFILER_STATE, std::make_shared<MemoryCount>(most));
}

std::string RunGuard::reason() const { return memory_ && reason_.empty() ? memory_->reason() : reason_; }

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  // The operators must stay in the graph although they return nothing.
  m.def(torch::schema("check_node(int node) -> ()", c10::AliasAnalysisKind::CONSERVATIVE), check_node);
  m.def(torch::schema("check_run() -> ()", c10::AliasAnalysisKind::CONSERVATIVE), check_run);
  m.def(torch::schema("check_run.iteration(int iteration) -> ()", c10::AliasAnalysisKind::CONSERVATIVE),
        check_iteration);
}

}  // namespace onnxtorch
