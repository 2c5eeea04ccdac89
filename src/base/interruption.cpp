#include "base/interruption.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <stdexcept>
#include <utility>

namespace onnxtorch {
namespace {

std::atomic<bool> at_work = false;  // whether a thread that can be interrupted is at work
std::atomic<bool> signalled = false;
thread_local Interruptible* current = nullptr;

// An allocator that stands in the usual one's place while a signal waits for an answer.
class AskingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    check_interruption();
    return around_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return around_->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override { around_->copy_data(to, from, bytes); }

  void take_place() {
    c10::Allocator* const there = c10::GetCPUAllocator();
    if (there == this) return;
    around_ = there;
    c10::SetCPUAllocator(this);
  }
  void give_place() {
    if (c10::GetCPUAllocator() == this) c10::SetCPUAllocator(around_);
  }

 private:
  c10::Allocator* around_ = nullptr;
};

AskingAllocator asking_allocator;

}  // namespace

Interruptible::Interruptible(void (*ask)()) : ask_(ask), stop_(nullptr), around_(std::exchange(current, this)) {
  at_work = true;
}

Interruptible::Interruptible(const StopFlag& stop)
    : ask_(nullptr), stop_(&stop), around_(std::exchange(current, this)) {}

Interruptible::~Interruptible() {
  current = around_;
  if (around_ || stop_) return;
  at_work = false;
  if (signalled.exchange(false)) asking_allocator.give_place();
}

void Interruptible::check() {
  rethrow();
  if (stop_) {
    if (is_stopped()) {
      thrown_ = std::make_exception_ptr(std::runtime_error(stopped_by_caller()));
      rethrow();
    }
    return;
  }
  signalled = false;
  asking_allocator.give_place();
  try {
    ask_();
  } catch (...) {
    thrown_ = std::current_exception();
    interrupt();  // whoever catches it and goes on is stopped again
    throw;
  }
}

void Interruptible::rethrow() const {
  if (thrown_) std::rethrow_exception(thrown_);
}

void interrupt() noexcept {
  if (!at_work || signalled.exchange(true)) return;
  asking_allocator.take_place();
}

void check_interruption() {
  if (current && (signalled.load(std::memory_order_relaxed) || current->is_stopped())) [[unlikely]]
    current->check();
}

std::string stopped_by_caller() { return "Exiting due to terminate flag being set to true."; }  // onnxruntime's words

bool is_interruptible() { return current != nullptr; }

bool interrupted() { return current && current->interrupted(); }

}  // namespace onnxtorch
