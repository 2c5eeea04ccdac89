#include "base/prepare_guard.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/memory_reserve.h"
#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

thread_local const PrepareGuard* guard = nullptr;

double memory_of_machine() {
  return static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGE_SIZE));
}

}  // namespace

PrepareGuard::PrepareGuard(const Limits& limits)
    : outermost_(guard == nullptr), seconds_(limits.prepare_seconds), constant_bytes_(limits.constant_bytes) {
  if (!outermost_) return;
  need_memory_reserve();
  guard = this;
}

PrepareGuard::~PrepareGuard() {
  if (outermost_) guard = nullptr;
}

bool PrepareGuard::has_end() const { return std::isfinite(seconds_); }

bool PrepareGuard::is_over() const { return since_start_.seconds() > seconds_; }

void PrepareGuard::check() const {
  if (!is_over()) return;
  std::ostringstream text;
  text << "preparing the model takes longer than the " << seconds_
       << " seconds that the option limits allows it (prepare_seconds); allow more if you trust the model with it";
  throw StoppedError(text.str());
}

void PrepareGuard::count_bytes(double bytes) const {
  counted_bytes_ += bytes;
  if (counted_bytes_ <= most_constant_bytes()) return;
  std::ostringstream text;
  text << "the model's sparse tensors take " << counted_bytes_ << " bytes of memory, more than the "
       << most_constant_bytes() << " that the option limits allows what follows from constants (constant_bytes)";
  throw StoppedError(text.str());
}

const PrepareGuard* guard_of_preparation() { return guard; }

void count_constant_bytes(double bytes) {
  if (guard) guard->count_bytes(bytes);
}

void check_preparation() {
  check_memory_reserve();
  if (guard) guard->check();
}

double most_constant_bytes() {
  const double most = memory_of_machine();
  return guard ? std::min(most, guard->constant_bytes()) : most;
}

}  // namespace onnxtorch
