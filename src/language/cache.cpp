#include "language/cache.h"

#include <ATen/ops/index_select.h>

#include <algorithm>

namespace onnxtorch {

const CacheEntry* Cache::entry(const std::string& name) const {
  const auto found = std::ranges::find(*entries_, name, &CacheEntry::name);
  return found == entries_->end() ? nullptr : &*found;
}

at::Tensor Cache::past(const std::string& name) const {
  const auto found = held_.find(name);
  return found == held_.end() ? at::Tensor() : found->second;
}

void Cache::take(const std::string& name, const at::Tensor& present) {
  const CacheEntry* const known = entry(name);
  if (!known || (known->of_encoder && held_.contains(name))) return;
  held_[name] = present;
}

bool Cache::can_rewind() const {
  return std::ranges::all_of(*entries_, [](const CacheEntry& e) { return e.of_encoder || e.sequence_axis >= 0; });
}

void Cache::rewind(int64_t length) {
  for (auto& [name, tensor] : held_) {
    const CacheEntry& of = *entry(name);
    if (!of.of_encoder) tensor = tensor.narrow(of.sequence_axis, 0, length).contiguous();
  }
}

void Cache::reorder(const at::Tensor& rows) {
  for (auto& [name, tensor] : held_) {
    tensor = tensor.index_select(entry(name)->batch_axis, rows.to(tensor.device()));
  }
}

}  // namespace onnxtorch
