#include "runtime/plan/plans.h"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <iostream>
#include <mutex>
#include <utility>

#include "base/cpu_tensor.h"
#include "base/interruption.h"
#include "base/text_of.h"
#include "kernels/cpu/operators.h"
#include "runtime/dumped.h"
#include "runtime/plan/recorder.h"

namespace onnxtorch {
namespace {

using c10::IValue;

constexpr size_t kMostSizes = 64;  // the number that are remembered
constexpr int kMostFailures = 4;   // no run is recorded any more after so many

// Tells whether elements lie in row-major order, with gaps between them where the tensor is a part of a larger one.
bool lies_in_order(const at::Tensor& t) {
  int64_t least = 1;
  for (int64_t d = t.dim() - 1; d >= 0; --d) {
    if (t.size(d) == 1) continue;
    if (t.stride(d) < least || (least == 1 && t.stride(d) != 1)) return false;
    least = std::max<int64_t>(t.stride(d) * t.size(d), 2);
  }
  return true;
}

void add(ShapeKey& key, const at::Tensor& t) {
  key.add_type_and_sizes(t);
  if (!t.is_contiguous()) key.add(t.strides());
}

// Tells whether somebody wants to see each of ATen's operators, as profilers do.
bool is_watched() { return at::hasCallbacks() || c10::impl::TorchDispatchModeTLS::any_modes_set(); }

}  // namespace

Plans::Plans(const Program& program, size_t most) : program_(program), most_(most) {
  register_few_elements();
  register_casts();
  register_indexed_rows();
  register_padding();
  register_triangles();
}

// Makes the key of the inputs; none for inputs that plans do not take.
std::optional<ShapeKey> Plans::key_of(std::span<const IValue> inputs) const {
  ShapeKey key;
  key.add(at::get_num_threads());
  for (const IValue& input : inputs) {
    if (!input.isTensor()) return {};
    const at::Tensor& t = input.toTensor();
    if (!lies_in_memory(t) || (!t.is_contiguous() && !lies_in_order(t))) return {};
    add(key, t);
  }
  return key;
}

// Finds what is known of these sizes; null where they are new, and are remembered from now on.
std::shared_ptr<Plans::Sizes> Plans::find(const ShapeKey& key) {
  const auto found = std::ranges::find_if(sizes_, [&](const auto& sizes) { return sizes->key == key; });
  if (found != sizes_.end()) {
    if (found != sizes_.begin()) sizes_.splice(sizes_.begin(), sizes_, found);
    return sizes_.front();
  }
  if (sizes_.size() == kMostSizes) sizes_.pop_back();
  sizes_.push_front(std::make_shared<Sizes>(Sizes{.key = key}));
  return {};
}

int64_t Plans::count() const {
  return std::ranges::count_if(sizes_, [](const auto& sizes) { return sizes->plan != nullptr; });
}

void Plans::drop_oldest_plan() {
  const auto oldest =
      std::find_if(sizes_.rbegin(), sizes_.rend(), [](const auto& sizes) { return sizes->plan != nullptr; });
  if (oldest == sizes_.rend()) return;
  const Sizes& dropped = **oldest;
  **oldest = {.key = dropped.key,
              .plain = dropped.plain_after,
              .plain_after = 2 * dropped.plain_after,
              .relies_on_branches = dropped.relies_on_branches};
}

// Records a run. It may fail for the inputs' elements: then the program run plainly fails, too, and tells which node
// did.
Plans::Results Plans::record(Sizes& sizes, std::span<const IValue> inputs,
                             const c10::intrusive_ptr<StringPool>& strings, const Targets& targets,
                             const std::function<Results()>& plainly) {
  try {
    Recorded recorded = record_plan(program_, inputs, strings, targets, sizes.relies_on_branches);
    if (is_dumped("plan")) std::cerr << text_of(*recorded.plan) << std::flush;
    const std::lock_guard lock(mutex_);
    sizes.plan = std::move(recorded.plan);
    if (count() > static_cast<int64_t>(most_)) drop_oldest_plan();
    return std::move(recorded.results);
  } catch (const std::exception& failure) {
    if (interrupted()) throw;
    if (is_dumped("plan")) std::cerr << "no plan: " << text_of(failure) << "\n";
  }
  Results results = plainly();
  const std::lock_guard lock(mutex_);
  ++failures_;
  return results;
}

Plans::Results Plans::run(std::span<const IValue> inputs, const c10::intrusive_ptr<StringPool>& strings,
                          const Targets& targets, const std::function<Results()>& plainly) {
  std::optional<ShapeKey> key = most_ > 0 && !is_watched() ? key_of(inputs) : std::nullopt;
  if (!key) return plainly();
  for (const at::Tensor& target : targets) {  // results get their strides, where these have gaps
    if (target.defined() && !target.is_contiguous()) add(*key, target);
  }
  std::shared_ptr<Sizes> sizes;
  std::shared_ptr<const Plan> plan;
  std::unique_ptr<Workspace> workspace;
  bool is_new = false;
  {
    const std::lock_guard lock(mutex_);
    if (failures_ < kMostFailures || count() > 0) sizes = find(*key);
    if (sizes) {
      plan = sizes->plan;
      const bool waits = sizes->plain > 0;
      sizes->plain -= waits ? 1 : 0;
      is_new = !plan && !waits && !std::exchange(sizes->is_recorded, true);
      if (plan && !sizes->free.empty()) {
        workspace = std::move(sizes->free.back());
        sizes->free.pop_back();
      }
    }
  }
  if (is_new) {
    if (!is_recording_.exchange(true)) {
      const auto end = [](std::atomic<bool>* is_recording) { *is_recording = false; };
      const std::unique_ptr<std::atomic<bool>, decltype(end)> recording(&is_recording_, end);
      return record(*sizes, inputs, strings, targets, plainly);
    }
    const std::lock_guard lock(mutex_);
    sizes->is_recorded = false;  // a later run may record it
  }
  if (!plan) return plainly();
  bool has_other_form = false;
  try {
    if (!workspace) workspace = std::make_unique<Workspace>(plan);
    Results results = workspace->run(inputs, strings, targets);
    const std::lock_guard lock(mutex_);
    if (sizes->plan == plan) sizes->free.push_back(std::move(workspace));
    return results;
  } catch (const OtherForm& failure) {
    has_other_form = true;
    if (is_dumped("plan")) std::cerr << "the plan fails: " << failure.what() << "\n";
  } catch (const std::exception& failure) {
    if (interrupted()) throw;
    if (is_dumped("plan")) std::cerr << "the plan fails: " << text_of(failure) << "\n";
  }
  Results results = plainly();
  const std::lock_guard lock(mutex_);
  if (sizes->plan == plan) {
    sizes->plan = {};
    sizes->free.clear();
    if (has_other_form && sizes->relies_on_branches) {  // the next run records one that relies on less
      sizes->relies_on_branches = sizes->is_recorded = false;
    } else {
      ++failures_;
    }
  }
  return results;
}

std::vector<std::string> Plans::texts() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> found;
  for (const auto& sizes : sizes_) {
    if (sizes->plan) found.push_back(text_of(*sizes->plan));
  }
  return found;
}

void Plans::clear() {
  const std::lock_guard lock(mutex_);
  for (const auto& sizes : sizes_) sizes->free.clear();
}

}  // namespace onnxtorch
