#include "runtime/tried_sizes.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "translate/signature.h"

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

TriedSizes::TriedSizes(InputSizes largest, std::span<const InputSpec> inputs) : largest_{std::move(largest)} {
  std::map<std::string_view, std::vector<Dimension>> by_name;
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t dim = 0; inputs[i].dims && dim < inputs[i].dims->size(); ++dim) {
      const Dim& declared = (*inputs[i].dims)[dim];
      if (has_name(declared)) by_name[declared.symbol].push_back({i, dim});
    }
  }
  for (auto& [name, dimensions] : by_name) {
    if (dimensions.size() > 1) of_one_name_.push_back(std::move(dimensions));
  }
}

bool TriedSizes::agree(const FedInputs& feeds) const {
  return std::ranges::all_of(of_one_name_, [&](const std::vector<Dimension>& dimensions) {
    std::optional<int64_t> first;
    for (const auto& [input, dim] : dimensions) {
      const at::IntArrayRef sizes = sizes_of(feeds[input]);
      if (dim >= sizes.size()) continue;  // an optional input that is absent
      if (first.value_or(sizes[dim]) != sizes[dim]) return false;
      first = sizes[dim];
    }
    return true;
  });
}

bool TriedSizes::cover(const FedInputs& feeds) const {
  if (!agree(feeds)) return false;
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
