#include "lower/onednn/fused.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <sstream>

namespace onnxtorch::onednn {
namespace {

// Without a primitive: types that have none, and empty tensors.
bool is_plain(const at::Tensor& x) { return x.scalar_type() == c10::kFloat && x.device().is_cpu() && x.numel() > 0; }

// The tensor with these strides. That of a dimension of size 1 does not matter.
at::Tensor arranged(const at::Tensor& t, at::IntArrayRef strides) {
  bool fits = true;
  for (int64_t i = 0; i < t.dim(); ++i) fits = fits && (t.size(i) == 1 || t.stride(i) == strides[i]);
  return fits ? t : at::empty_strided(t.sizes(), strides, t.options()).copy_(t);
}

// The operand in the memory layout of the result, where it has its shape.
std::optional<at::Tensor> arranged_as(const Prepared& p, const at::Tensor& operand) {
  if (operand.sizes() != at::IntArrayRef(p.sizes) || !is_plain(operand)) return {};
  return arranged(operand, p.strides);
}

// What tells one layout from another.
std::string layout_of(const dnnl::memory::desc& desc) {
  if (desc.get_format_kind() != dnnl::memory::format_kind::blocked) return "";
  std::ostringstream text;
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
  return text.str();
}

// oneDNN's max and min give the other operand for a NaN; ATen gives the NaN.
bool loses_nan(const PostOp& step) {
  return step.kind == PostOp::Kind::Activation &&
         (step.activation == "relu" || step.activation == "clamp" || step.activation == "hardsigmoid" ||
          (step.activation == "leaky_relu" && step.alpha == 0));
}

constexpr float kLargest = std::numeric_limits<float>::max();

// The largest input for which sums of so many products with the weights cannot overflow.
float largest_input(const at::Tensor& weight, const at::Tensor& bias, int64_t terms) {
  const auto largest = [](const at::Tensor& t) { return t.abs().max().item<float>(); };
  if (bias.defined() && !(largest(bias) < kLargest / 2)) return -1;
  return kLargest / 2 / (static_cast<float>(terms) * largest(weight));  // NaN where a weight is
}

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) bool block_within(const float* data,
                                                                                                int64_t count,
                                                                                                float most) {
  int within = 1;
  for (int64_t i = 0; i < count; ++i) within &= std::abs(data[i]) <= most;
  return within;
}

// Whether no element is larger, or NaN. The tensor's elements lie side by side, in some order.
bool all_within(const at::Tensor& t, float most) {
  const float* const data = t.const_data_ptr<float>();
  std::atomic<bool> within = true;
  at::parallel_for(0, t.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    if (!block_within(data + begin, end - begin, most)) within = false;
  });
  return within;
}

}  // namespace

Fused::Fused(at::Tensor weight, at::Tensor bias, int64_t terms, std::vector<PostOp> post_ops)
    : weight_(std::move(weight)),
      bias_(bias.defined() ? bias.contiguous() : std::move(bias)),
      post_ops_(std::move(post_ops)),
      operands_(
          std::ranges::count_if(post_ops_, [](const PostOp& step) { return step.kind != PostOp::Kind::Activation; })),
      most_(std::ranges::any_of(post_ops_, loses_nan) ? largest_input(weight_, bias_, terms)
                                                      : std::numeric_limits<float>::infinity()) {}

std::shared_ptr<const Prepared> Fused::prepared(at::IntArrayRef sizes, bool with_steps) const {
  Key key(sizes.begin(), sizes.end());
  key.push_back(with_steps);
  key.push_back(at::get_num_threads());  // a primitive divides its work when it is made
  return recent_.get(key,
                     [&] { return prepare(sizes, with_steps ? std::span(post_ops_) : std::span<const PostOp>()); });
}

void Fused::expect(at::IntArrayRef sizes) const {
  if (fits(sizes) && c10::multiply_integers(sizes) > 0) prepared(sizes, true);
}

std::vector<SavedWeights> Fused::saved() const {
  const std::lock_guard lock(mutex_);
  std::vector<SavedWeights> result;
  for (const Laid& laid : laid_) {
    if (auto layout = layout_of(laid.memory.get_desc()); !layout.empty())
      result.push_back({std::move(layout), laid.bytes});
  }
  return result;
}

void Fused::take(std::vector<SavedWeights> saved) const {
  const std::lock_guard lock(mutex_);
  saved_ = std::move(saved);
}

Laid Fused::laid_weight(const at::Tensor& weight, const dnnl::memory::desc& desc,
                        const dnnl::memory::desc& wanted) const {
  const std::lock_guard lock(mutex_);
  for (const Laid& laid : laid_) {
    if (laid.memory.get_desc() == wanted) return laid;
  }
  for (const SavedWeights& known : saved_) {
    if (known.layout != layout_of(wanted) || known.bytes.numel() != static_cast<int64_t>(wanted.get_size())) continue;
    return laid_.emplace_back(Laid{known.bytes, borrowed(wanted, known.bytes)});
  }
  return laid_.emplace_back(laid_out(borrowed(desc, weight), wanted));
}

at::Tensor Fused::run(const at::Tensor& given, at::TensorList operands) const {
  const auto plainly = [&] { return apply(by_aten(given), post_ops_, operands); };
  if (!is_plain(given) || !fits(given.sizes())) return plainly();
  const at::Tensor x = arranged(given, strides(given.sizes()));
  std::shared_ptr<const Prepared> p = prepared(x.sizes(), true);
  if (!p->primitive) return plainly();

  std::vector<at::Tensor> others;
  for (const at::Tensor& operand : operands) {
    auto fitting = arranged_as(*p, operand);
    if (!fitting) break;
    others.push_back(*std::move(fitting));
  }
  bool fused = others.size() == operands_;
  if (most_ != std::numeric_limits<float>::infinity()) {
    fused = fused && all_within(x, most_) &&
            std::ranges::all_of(others, [](const at::Tensor& operand) { return all_within(operand, kLargest / 2); });
  }
  if (!fused) p = prepared(x.sizes(), false);
  if (!p->primitive) return plainly();

  const at::Tensor y = at::empty_strided(p->sizes, p->strides, x.options());
  const dnnl::memory source = borrowed(p->source, x), result = borrowed(p->result, y);
  std::vector<dnnl::memory> lent;
  std::vector<dnnl_exec_arg_t> arguments = {
      {DNNL_ARG_SRC, source.get()}, {DNNL_ARG_WEIGHTS, p->weight.memory.get()}, {DNNL_ARG_DST, result.get()}};
  const auto lend = [&](int argument, const dnnl::memory::desc& desc, const at::Tensor& tensor) {
    arguments.push_back({argument, lent.emplace_back(borrowed(desc, tensor)).get()});
  };
  if (bias_.defined())
    lend(DNNL_ARG_BIAS, {{bias_.numel()}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a}, bias_);
  at::Tensor scratchpad;
  if (const auto bytes = static_cast<int64_t>(p->scratchpad.get_size()); bytes > 0) {
    lend(DNNL_ARG_SCRATCHPAD, p->scratchpad, scratchpad = at::empty(bytes, at::kByte));
  }
  if (fused) {
    size_t next = 0;
    for (size_t i = 0; i < post_ops_.size(); ++i) {
      if (post_ops_[i].kind == PostOp::Kind::Activation) continue;
      lend(DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1, p->result, others[next++]);
    }
  }
  execute(p->primitive, arguments);
  return fused ? y : apply(y, post_ops_, operands);
}

}  // namespace onnxtorch::onednn
