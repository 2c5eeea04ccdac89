#include "kernels/cpu/packed/held_weight.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

namespace onnxtorch {

at::Tensor form_of(const at::Tensor& t) {
  return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta));
}

HeldWeight::HeldWeight(const at::Tensor& plain, std::string name) : name_(std::move(name)) {
  at::Tensor dense = plain.is_non_overlapping_and_dense() ? plain : plain.contiguous();
  form_ = form_of(dense);
  make_ = [dense = std::move(dense)] { return dense; };
}

HeldWeight::HeldWeight(at::Tensor form, std::function<at::Tensor()> make)
    : name_("weight"), form_(std::move(form)), make_(std::move(make)) {}

at::Tensor HeldWeight::plain() const {
  const std::lock_guard lock(mutex_);
  return make_();
}

at::Tensor HeldWeight::get(const Layout& layout) const {
  const std::lock_guard lock(mutex_);
  if (bytes_) return bytes_->bytes;
  const std::string name = name_ + ':' + layout.name;
  const auto known = std::ranges::find(saved_, name, &SavedWeights::layout);
  const at::Tensor laid = known != saved_.end() && layout.sound(known->bytes) ? known->bytes : layout.lay(make_());
  bytes_ = {name, laid};
  make_ = [laid, restore = layout.restore, form = form_] {
    return at::empty_strided(form.sizes(), form.strides(), form.options().device(at::kCPU)).copy_(restore(laid));
  };
  return laid;
}

std::vector<SavedWeights> HeldWeight::saved() const {
  const std::lock_guard lock(mutex_);
  return bytes_ ? std::vector{*bytes_} : std::vector<SavedWeights>();
}

// Takes saved weights, but not bytes that are not aligned as they were laid out, in a file whose index is wrong:
// kernels read vectors from them.
void HeldWeight::take(const std::vector<SavedWeights>& saved) const {
  constexpr uintptr_t kAlignment = 64;
  const std::lock_guard lock(mutex_);
  saved_.clear();
  std::ranges::copy_if(saved, std::back_inserter(saved_), [](const SavedWeights& one) {
    return reinterpret_cast<uintptr_t>(one.bytes.const_data_ptr()) % kAlignment == 0;
  });
}

}  // namespace onnxtorch
