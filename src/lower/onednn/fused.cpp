#include "lower/onednn/fused.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "kernels/arrange.h"
#include "kernels/work_memory.h"
#include "lower/for_each_cpu.h"
#include "runtime/thread_limit.h"

namespace onnxtorch::onednn {

std::optional<at::Tensor> arranged_as(const Prepared& p, const at::Tensor& operand) {
  if (operand.sizes() != at::IntArrayRef(p.sizes) || !is_plain(operand)) return {};
  return arranged(operand, p.strides);
}

namespace {

// oneDNN's max and min give the other operand for a NaN; ATen gives the NaN.
bool loses_nan(const PostOp& step) {
  return step.kind == PostOp::Kind::Activation &&
         (step.activation == "relu" || step.activation == "clamp" || step.activation == "hardsigmoid" ||
          (step.activation == "leaky_relu" && step.alpha == 0));
}

constexpr auto kFloat = dnnl::memory::data_type::f32;
constexpr float kLargest = std::numeric_limits<float>::max();

// The largest input for which sums of so many products with the weights cannot overflow.
float largest_input(const at::Tensor& weight, const at::Tensor& bias, int64_t terms) {
  const auto largest = [](const at::Tensor& t) {
    const auto [low, high] = at::aminmax(t);
    return std::max(-low.item<float>(), high.item<float>());  // NaN where an element is
  };
  if (bias.defined() && !(largest(bias) < kLargest / 2)) return -1;
  return kLargest / 2 / (static_cast<float>(terms) * largest(weight));  // NaN where a weight is
}

template <typename T>
ONNX_TORCH_INLINE bool each_within(const T* data, int64_t count, float most) {
  int within = 1;
  for (int64_t i = 0; i < count; ++i) within &= std::abs(static_cast<float>(data[i])) <= most;
  return within;
}

ONNX_TORCH_FOR_EACH_CPU bool block_within(const float* data, int64_t count, float most) {
  return each_within(data, count, most);
}
ONNX_TORCH_FOR_EACH_CPU bool block_within(const c10::BFloat16* data, int64_t count, float most) {
  return each_within(data, count, most);
}

// Whether no element is larger, or NaN. The tensor's elements lie side by side, in some order.
template <typename T>
bool all_within(const at::Tensor& t, float most) {
  const T* const data = t.const_data_ptr<T>();
  std::atomic<bool> within = true;
  at::parallel_for(0, t.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
    if (!block_within(data + begin, end - begin, most)) within = false;
  });
  return within;
}

bool all_within(const at::Tensor& t, float most) {
  return t.scalar_type() == c10::kFloat ? all_within<float>(t, most) : all_within<c10::BFloat16>(t, most);
}

std::vector<PostOp> with_sum(std::vector<PostOp> steps) {
  if (!steps.empty() && steps.front().kind == PostOp::Kind::Add) steps.front().kind = PostOp::Kind::Sum;
  return steps;
}

}  // namespace

Fused::Fused(const at::Tensor& weight, const at::Tensor& bias, int64_t terms, c10::ScalarType result,
             std::vector<PostOp> post_ops)
    : laid_(weight),
      form_(laid_.form()),
      bias_(bias.defined() ? bias.to(c10::kFloat).contiguous() : bias),
      result_(result),
      terms_(terms),
      lent_bias_(bias_.defined() ? borrowed({{bias_.numel()}, kFloat, dnnl::memory::format_tag::a}, bias_)
                                 : dnnl::memory()),
      post_ops_(std::move(post_ops)),
      summing_(with_sum(post_ops_)),
      operands_(
          std::ranges::count_if(post_ops_, [](const PostOp& step) { return step.kind != PostOp::Kind::Activation; })),
      most_(std::ranges::any_of(post_ops_, loses_nan) ? largest_input(weight, bias_, terms)
                                                      : std::numeric_limits<float>::infinity()) {}

std::shared_ptr<const Prepared> Fused::prepared(at::IntArrayRef sizes, Steps steps) const {
  Key key;
  key.reserve(sizes.size() + 2);
  key.assign(sizes.begin(), sizes.end());
  key.push_back(steps.empty() ? -1 : static_cast<int64_t>(steps.front().kind));
  key.push_back(at::get_num_threads());  // a primitive divides its work when it is made
  return recent_.get(key, [&] { return prepare_for_threads(sizes, steps); });
}

// What one thread does in a few microseconds is done before another has begun.
Prepared Fused::prepare_for_threads(at::IntArrayRef sizes, Steps steps) const {
  constexpr int64_t kLeastWork = 1 << 18;
  Prepared result = prepare(sizes, steps);
  if (!result.primitive || c10::multiply_integers(result.sizes) * terms_ >= kLeastWork) return result;
  const ThreadLimit limit(1);
  result = prepare(sizes, steps);
  result.threads = 1;
  return result;
}

void Fused::expect(at::IntArrayRef sizes) const {
  if (fits(sizes) && c10::multiply_integers(sizes) > 0) prepared(sizes, summing_);
}

at::Tensor Fused::run(const at::Tensor& given, at::TensorList operands) const {
  const auto plainly = [&] { return apply(by_aten(given).to(result_), post_ops_, operands); };
  if (!is_plain(given, form_.scalar_type()) || !fits(given.sizes())) return plainly();
  const at::Tensor x = arranged(given, strides(given.sizes()));
  const Steps steps = !operands.empty() && is_last_reference(operands.front()) ? summing_ : post_ops_;
  std::shared_ptr<const Prepared> p = prepared(x.sizes(), steps);
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
  if (!fused) p = prepared(x.sizes(), {});
  if (!p->primitive) return plainly();

  const bool sums = fused && !steps.empty() && steps.front().kind == PostOp::Kind::Sum;
  const at::Tensor y = sums ? others.front() : work_tensor(p->sizes, p->strides, result_);
  Call call(p->frames);
  call.with(DNNL_ARG_SRC, p->source, x).with(DNNL_ARG_WEIGHTS, p->weight.memory).with(DNNL_ARG_DST, p->result, y);
  if (lent_bias_) call.with(DNNL_ARG_BIAS, lent_bias_);
  if (fused) {
    size_t next = sums ? 1 : 0;
    for (size_t i = next; i < steps.size(); ++i) {
      if (steps[i].kind == PostOp::Kind::Activation) continue;
      call.with(DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1, p->result, others[next++]);
    }
  }
  {
    const ThreadLimit limit(p->threads);
    call.run(p->primitive, p->scratchpad);
  }
  return fused ? y : apply(y, post_ops_, operands);
}

}  // namespace onnxtorch::onednn
