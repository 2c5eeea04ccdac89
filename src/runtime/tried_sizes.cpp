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

bool lies_within(int64_t size, const SizeRange& range) {
  return size == range.largest || (size >= range.least && size < range.largest);
}

at::IntArrayRef sizes_of(const std::optional<Fed>& fed) {
  return fed && fed->value.isTensor() ? fed->value.toTensor().sizes() : at::IntArrayRef();
}

bool lie_within(const FedInputs& feeds, const SizeRanges& ranges) {
  return std::ranges::equal(feeds, ranges, [](const std::optional<Fed>& fed, const std::vector<SizeRange>& of_input) {
    const auto fits = [](int64_t size, const SizeRange& range) { return lies_within(size, range); };
    return of_input.empty() || std::ranges::equal(sizes_of(fed), of_input, fits);
  });
}

bool lies_within(const SizeRange& inner, const SizeRange& outer) {
  return inner.largest <= outer.largest && inner.least >= outer.least;
}

}  // namespace

TriedSizes::TriedSizes(SizeRanges ranges, std::span<const InputSpec> inputs) : ranges_{std::move(ranges)} {
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
  if (!excluded_.empty() && std::ranges::count(excluded_, sizes_of(feeds, ranges_[0])) > 0) return false;
  return std::ranges::any_of(ranges_, [&](const SizeRanges& ranges) { return lie_within(feeds, ranges); });
}

void TriedSizes::extend(SizeRanges ranges) {
  constexpr size_t kMost = 16;
  const std::lock_guard lock(mutex_);
  std::erase_if(ranges_, [&](const SizeRanges& other) {
    return std::ranges::equal(other, ranges, [](const auto& a, const auto& b) {
      return std::ranges::equal(a, b, [](const SizeRange& x, const SizeRange& y) { return lies_within(x, y); });
    });
  });
  if (ranges_.size() == kMost) ranges_.erase(ranges_.begin());
  ranges_.push_back(std::move(ranges));
}

void TriedSizes::exclude(const FedInputs& feeds) {
  constexpr size_t kMost = 64;  // sizes that are forgotten fail once more, and are then excluded again
  const std::lock_guard lock(mutex_);
  if (excluded_.size() == kMost) excluded_.erase(excluded_.begin());
  excluded_.push_back(sizes_of(feeds, ranges_[0]));
}

std::vector<std::vector<int64_t>> sizes_of(const FedInputs& feeds, const SizeRanges& known) {
  std::vector<std::vector<int64_t>> sizes(known.size());
  for (size_t i = 0; i < known.size(); ++i) {
    if (!known[i].empty()) sizes[i] = sizes_of(feeds[i]).vec();
  }
  return sizes;
}

}  // namespace onnxtorch
