#include "runtime/tried_sizes.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <utility>

namespace onnxtorch {
namespace {

// No size of an empty tensor lies between 1 and others.
bool lies_within(int64_t size, int64_t largest) { return size == largest || (size > 0 && size < largest); }

at::IntArrayRef sizes_of(const std::optional<Fed>& fed) {
  return fed && fed->value.isTensor() ? fed->value.toTensor().sizes() : at::IntArrayRef();
}

bool lies_within(const FedInputs& feeds, const InputSizes& largest) {
  return std::ranges::equal(feeds, largest, [](const std::optional<Fed>& fed, const std::vector<int64_t>& most) {
    const auto fits = [](int64_t size, int64_t largest_size) { return lies_within(size, largest_size); };
    return most.empty() || std::ranges::equal(sizes_of(fed), most, fits);
  });
}

}  // namespace

bool TriedSizes::cover(const FedInputs& feeds) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(largest_, [&](const InputSizes& largest) { return lies_within(feeds, largest); });
}

void TriedSizes::extend(InputSizes largest) {
  constexpr size_t kMost = 16;
  const std::lock_guard lock(mutex_);
  const auto is_within = [&](const InputSizes& other) {
    return std::ranges::equal(other, largest, [](const auto& a, const auto& b) {
      return std::ranges::equal(a, b, std::ranges::less_equal());
    });
  };
  largest_.erase(std::remove_if(largest_.begin(), largest_.end(), is_within), largest_.end());
  if (largest_.size() == kMost) largest_.erase(largest_.begin());
  largest_.push_back(std::move(largest));
}

InputSizes sizes_of(const FedInputs& feeds, const InputSizes& known) {
  InputSizes sizes(known.size());
  for (size_t i = 0; i < known.size(); ++i) {
    if (!known[i].empty()) sizes[i] = sizes_of(feeds[i]).vec();
  }
  return sizes;
}

}  // namespace onnxtorch
