#include "lower/onednn/laid_weight.h"

#include <sstream>

namespace onnxtorch::onednn {

// What tells one layout from another; nothing where oneDNN does not tell. Behind weights of 8 bits lie sums of them, of
// which only the size tells; what they are is the same for all layouts of one operator.
std::string LaidWeight::layout_of(const dnnl::memory::desc& desc) const {
  if (desc.get_format_kind() != dnnl::memory::format_kind::blocked) return "";
  std::ostringstream text;
  text << name_ << ':';
  const auto add = [&](const char* name, const dnnl::memory::dims& numbers) {
    text << name;
    for (const int64_t number : numbers) text << ' ' << number;
    text << ';';
  };
  add("sizes", desc.get_dims());
  add("padded", desc.get_padded_dims());
  add("strides", desc.get_strides());
  add("blocks", desc.get_inner_blks());
  add("of", desc.get_inner_idxs());
  add("bytes", {static_cast<int64_t>(desc.get_size())});
  return text.str();
}

Laid LaidWeight::get(const dnnl::memory& plain, const dnnl::memory::desc& wanted) const {
  const std::lock_guard lock(mutex_);
  for (const Laid& laid : laid_) {
    if (laid.memory.get_desc() == wanted) return laid;
  }
  for (const SavedWeights& known : saved_) {
    if (known.layout != layout_of(wanted) || known.bytes.numel() != static_cast<int64_t>(wanted.get_size())) continue;
    return laid_.emplace_back(Laid{known.bytes, borrowed(wanted, known.bytes)});
  }
  return laid_.emplace_back(laid_out(plain, wanted));
}

std::vector<SavedWeights> LaidWeight::saved() const {
  const std::lock_guard lock(mutex_);
  std::vector<SavedWeights> result;
  for (const Laid& laid : laid_) {
    if (auto layout = layout_of(laid.memory.get_desc()); !layout.empty())
      result.push_back({std::move(layout), laid.bytes});
  }
  return result;
}

void LaidWeight::take(const std::vector<SavedWeights>& saved) const {
  const std::lock_guard lock(mutex_);
  saved_ = saved;
}

}  // namespace onnxtorch::onednn
