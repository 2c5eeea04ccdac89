#include "kernels/cpu/onednn/laid_weight.h"

#include <ATen/ATen.h>
#include <c10/util/strides.h>

#include <memory>
#include <mutex>
#include <sstream>

#include "base/view_of.h"

namespace onnxtorch::onednn {
namespace {

// Gives a weight of int8 that lies in blocks as a plain one, by views: oneDNN takes none back that has sums of it
// behind its elements.
at::Tensor without_blocks(const Laid& laid) {
  const dnnl::memory::desc desc = laid.memory.get_desc();
  const dnnl::memory::dims dims = desc.get_dims(), padded = desc.get_padded_dims(), blocks = desc.get_inner_blks(),
                           of = desc.get_inner_idxs();
  std::vector<int64_t> sizes = padded, strides = desc.get_strides(), order;
  for (size_t i = 0; i < blocks.size(); ++i) sizes[of[i]] /= blocks[i];
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    order.push_back(static_cast<int64_t>(dim));
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (of[i] == static_cast<int64_t>(dim)) order.push_back(static_cast<int64_t>(dims.size() + i));
    }
  }
  const auto steps = c10::contiguous_strides(at::IntArrayRef(blocks));
  sizes.insert(sizes.end(), blocks.begin(), blocks.end());
  strides.insert(strides.end(), steps.begin(), steps.end());
  at::Tensor result = at::as_strided(laid.bytes.view(at::kChar), sizes, strides).permute(order).reshape(padded);
  for (size_t dim = 0; dim < dims.size(); ++dim) result = result.narrow(static_cast<int64_t>(dim), 0, dims[dim]);
  return result;
}

// Gives the memory of a dense tensor as bytes.
at::Tensor bytes_of(const at::Tensor& t) {
  return view_of(t.data_ptr(), {static_cast<int64_t>(t.nbytes())}, at::kByte, std::make_shared<at::Tensor>(t));
}

// Gives the weight that was laid out, which had this form, and was taken as described.
at::Tensor restored(const Laid& laid, const dnnl::memory::desc& taken_as, const at::Tensor& form) {
  at::Tensor plain = at::empty_strided(form.sizes(), form.strides(), form.options().device(at::kCPU));
  if (plain.scalar_type() == at::kChar) {
    at::as_strided(plain, taken_as.get_dims(), taken_as.get_strides()).copy_(without_blocks(laid));
  } else {
    reorder(laid.memory, borrowed(taken_as, plain));
  }
  return plain;
}

}  // namespace

// Gives a text that tells one layout from another; an empty one where oneDNN does not tell. Behind weights of int8 lie
// sums of them, of which only the size tells; what they are is the same for all layouts of one operator.
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

// Gives up the weight as it came, where it can be restored.
void LaidWeight::release(const dnnl::memory::desc& plain, const dnnl::memory::desc& laid) const {
  if (laid_.size() != 1 || !make_ || laid.get_data_type() != plain.get_data_type() ||
      laid.get_format_kind() != dnnl::memory::format_kind::blocked) {
    return;
  }
  make_ = [first = laid_.front(), plain, form = form_] { return restored(first, plain, form); };
}

Laid LaidWeight::get(const dnnl::memory& plain, const dnnl::memory::desc& wanted) const {
  const std::lock_guard lock(mutex_);
  need_memory();
  for (const Laid& laid : laid_) {
    if (laid.memory.get_desc() == wanted) return laid;
  }
  const dnnl::memory::desc form = plain.get_desc();
  for (const SavedWeights& known : saved_) {
    if (known.layout != layout_of(wanted) || known.bytes.numel() != static_cast<int64_t>(wanted.get_size())) continue;
    const Laid laid = laid_.emplace_back(Laid{known.bytes, borrowed(wanted, known.bytes)});
    release(form, wanted);
    return laid;
  }
  if (plain.get_data_handle()) return laid_.emplace_back(laid_out(plain, wanted));
  const at::Tensor held = make_();
  if (form == wanted) return laid_.emplace_back(Laid{bytes_of(held), borrowed(form, held)});
  const Laid laid = laid_.emplace_back(laid_out(borrowed(form, held), wanted));
  release(form, wanted);
  return laid;
}

dnnl::memory::desc LaidWeight::first() const {
  const std::lock_guard lock(mutex_);
  return laid_.empty() ? dnnl::memory::desc() : laid_.front().memory.get_desc();
}

std::vector<SavedWeights> LaidWeight::saved() const {
  std::vector<SavedWeights> result = HeldWeight::saved();
  const std::lock_guard lock(mutex_);
  for (const Laid& laid : laid_) {
    if (auto layout = layout_of(laid.memory.get_desc()); !layout.empty())
      result.push_back({std::move(layout), laid.bytes});
  }
  return result;
}

}  // namespace onnxtorch::onednn
