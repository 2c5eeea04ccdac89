#include "kernels/cpu/onednn/fused.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/WrapDimUtils.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <ranges>
#include <utility>

#include "base/arrange.h"
#include "base/parallel.h"
#include "base/thread_limit.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/onednn/isa.h"
#include "kernels/simd/largest.h"

namespace onnxtorch::onednn {
namespace {

// Tells whether a step loses a NaN: oneDNN's max and min give the other operand for it; ATen gives the NaN.
bool loses_nan(const PostOp& step) {
  static const bool sigmoid_loses_it = !keeps_nan_in_sigmoid();
  return step.kind == PostOp::Kind::Activation &&
         ((step.activation == "sigmoid" && sigmoid_loses_it) || step.activation == "relu" ||
          step.activation == "clamp" || step.activation == "hardsigmoid" ||
          (step.activation == "leaky_relu" && step.alpha == 0));
}

constexpr auto kFloat = dnnl::memory::data_type::f32;
constexpr float kLargest = std::numeric_limits<float>::max(), kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
float largest(const void* elements, int64_t count, int32_t (*bits_of_largest)(const T* x, int64_t count)) {
  const auto* const data = static_cast<const T*>(elements);
  const int32_t bits = parallel_reduce(
      count, 1, 0, [&](int64_t begin, int64_t end) { return bits_of_largest(data + begin, end - begin); },
      [](int32_t a, int32_t b) { return std::max(a, b); });
  return std::bit_cast<float>(bits);
}

// Gives the largest absolute value of so many contiguous elements; NaN where one is.
float largest(const void* elements, int64_t count, c10::ScalarType type) {
  const auto& kernels = for_this_cpu<LargestKernels>();
  return type == c10::kFloat ? largest(elements, count, kernels.of_floats)
                             : largest(elements, count, kernels.of_bfloat16);
}

float largest(const at::Tensor& t) { return largest(t.const_data_ptr(), t.numel(), t.scalar_type()); }

// Gives a bound of the absolute values: the noted one or, where that is more than `enough`, the largest of them. NaN
// where an element is.
float bound(const at::Tensor& t, float enough) {
  const float noted = bound_of(t);
  if (noted <= enough) return noted;
  const float found = largest(t);
  if (found <= kLargest && t.storage().nbytes() == t.nbytes()) note_bound(t, found);
  return found;
}

// Gives a bound of a step's result, if no element before is larger than `before`, or `operand` in the other tensor.
float bound_after(const PostOp& step, float before, float operand) {
  switch (step.kind) {
    case PostOp::Kind::Add:
    case PostOp::Kind::Sum:
      return before + operand;
    case PostOp::Kind::Mul:
      return before * operand;
    case PostOp::Kind::Activation:
      break;
  }
  const auto alpha = static_cast<float>(std::abs(step.alpha)), beta = static_cast<float>(std::abs(step.beta));
  if (step.activation == "leaky_relu") return std::max(before, before * alpha);
  if (step.activation == "clamp" && std::max(alpha, beta) <= kLargest) return std::max(alpha, beta);
  if (step.activation == "clamp") return std::max(before, std::min(alpha, beta));
  return std::max(before, 1.0F);
}

char* data_of(const at::Tensor& t) { return static_cast<char*>(t.data_ptr()); }

// Gives the operands in the memory layout of the result; none where one is of another shape or type.
std::optional<std::vector<at::Tensor>> arranged_as(at::IntArrayRef sizes, at::IntArrayRef strides,
                                                   at::TensorList operands) {
  std::vector<at::Tensor> fitting;
  for (const at::Tensor& operand : operands) {
    if (operand.sizes() != sizes || !is_plain(operand)) return {};
    fitting.push_back(arranged(operand, strides));
  }
  return fitting;
}

dnnl::memory lent(const at::Tensor& bias) {
  need_memory();
  return borrowed({{bias.numel()}, kFloat, dnnl::memory::format_tag::a}, bias);
}

ShapeKey key_of(at::IntArrayRef sizes, std::span<const PostOp> steps) {
  const int64_t first_step = steps.empty() ? -1 : static_cast<int64_t>(steps.front().kind);
  return primitive_key().add(sizes).add(first_step);
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
      row_steps_(post_ops),
      terms_(terms),
      lent_bias_(bias_.defined() ? lent(bias_) : dnnl::memory()),
      post_ops_(std::move(post_ops)),
      summing_(with_sum(post_ops_)),
      operands_(
          std::ranges::count_if(post_ops_, [](const PostOp& step) { return step.kind != PostOp::Kind::Activation; })),
      loses_nan_(std::ranges::any_of(post_ops_, loses_nan)),
      gain_(loses_nan_ ? static_cast<float>(terms) * largest(laid_.plain()) : kInfinity),
      offset_(loses_nan_ && bias_.defined() ? largest(bias_) : 0) {}

std::shared_ptr<const Prepared> Fused::prepared(at::IntArrayRef sizes, Steps steps) const {
  return recent_.get(key_of(sizes, steps), [&] {
    const auto parts = this->parts(sizes);
    return parts.empty() ? prepare_for_threads(sizes, steps) : prepare_in_parts(sizes, steps, parts);
  });
}

std::shared_ptr<const Prepared> Fused::prepared_whole(at::IntArrayRef sizes, Steps steps) const {
  return recent_.get(key_of(sizes, steps), [&] { return prepare_for_threads(sizes, steps); });
}

// Prepares a primitive for each part. A small primitive takes longer to make than to run; those of the parts serve
// other sizes, too.
Prepared Fused::prepare_in_parts(at::IntArrayRef sizes, Steps steps, std::span<const at::DimVector> parts) const {
  std::shared_ptr<const Prepared> rest;
  for (const at::DimVector& part : std::views::reverse(parts)) {
    Prepared prepared = *prepared_whole(part, steps);
    if (!prepared.primitive) return {};
    prepared.rest = std::move(rest);
    rest = std::make_shared<const Prepared>(std::move(prepared));
  }
  Prepared result = *rest;
  const int64_t out = result.sizes.back();
  result.sizes = sizes.vec();
  result.sizes.back() = out;
  result.strides = strides(result.sizes);
  return result;
}

// Prepares a primitive, a small one for one thread: what that does in a few microseconds is done before another has
// begun.
Prepared Fused::prepare_for_threads(at::IntArrayRef sizes, Steps steps) const {
  constexpr int64_t kLeastWork = 1 << 18;
  need_memory();
  Prepared result = prepare(sizes, steps);
  if (!result.primitive || c10::multiply_integers(result.sizes) * terms_ >= kLeastWork) return result;
  const ThreadLimit limit(1);
  result = prepare(sizes, steps);
  result.threads = 1;
  return result;
}

void Fused::take_rows(const at::Tensor& form, int64_t dim) {
  if (form.scalar_type() != c10::kFloat || result_ != c10::kFloat || form.numel() == 0) return;
  row_product_.emplace(laid_, form, bias_);
  row_dim_ = dim;
}

// Gives the number of rows of sizes that take no primitive; else 0.
int64_t Fused::rows_taken(at::IntArrayRef sizes) const {
  if (!row_product_) return 0;
  const auto dim = static_cast<size_t>(at::maybe_wrap_dim(row_dim_, static_cast<int64_t>(sizes.size())));
  if (c10::multiply_integers(sizes.slice(dim + 1)) != 1) return 0;
  const int64_t rows = c10::multiply_integers(sizes.slice(0, dim));
  return row_product_->takes(rows) ? rows : 0;
}

// Gives a bound of the result's absolute values; none where a step loses NaNs, and one may come to it. bound(i, enough)
// gives the bound of x (0) or of an operand (from 1); any one up to `enough` will do.
template <typename Bound>
std::optional<float> Fused::bound_of_result(Steps steps, const Bound& bound) const {
  if (!loses_nan_) return kInfinity;
  // Rounding may take a sum beyond the bound, but by far less than a factor of two.
  constexpr float kEnough = kLargest / 2;
  float result = bound(0, std::min(kLargest, (kEnough - offset_) / gain_)) * gain_ + offset_;
  if (!(result <= kEnough)) return {};
  size_t operand = 0;
  for (const PostOp& step : steps) {
    const float other = step.kind == PostOp::Kind::Activation ? 0 : bound(++operand, kEnough);
    if (!(other <= kEnough)) return {};
    result = bound_after(step, result, other);
  }
  return result;
}

std::vector<int64_t> Fused::sizes_of_product(at::IntArrayRef rows) const {
  std::vector<int64_t> sizes = rows.vec();
  sizes[at::maybe_wrap_dim(row_dim_, std::ssize(sizes))] = row_product_->columns();
  return sizes;
}

void Fused::run_rows(const float* x, float* y, int64_t rows, std::span<const float* const> operands) const {
  const bool adds = row_steps_.adds();
  row_product_->run(x, y, rows, {.addend = adds ? operands.front() : nullptr, .relu = row_steps_.has_relu()});
  row_steps_.run(y, rows * row_product_->columns(), operands.subspan(adds ? 1 : 0));
}

// Computes the product of the rows of x, which lies as strides() tells.
at::Tensor Fused::run_rows(const at::Tensor& x, int64_t rows, at::TensorList operands) const {
  const std::vector<int64_t> sizes = sizes_of_product(x.sizes()), strides = this->strides(sizes);
  const bool sums = row_steps_.adds() && !operands.empty() && is_last_reference(operands.front()) &&
                    row_product_->adds_in_place(rows);
  const auto fitting = operands.size() == operands_ ? arranged_as(sizes, strides, operands) : std::nullopt;
  at::Tensor y = fitting && sums ? fitting->front() : work_tensor(sizes, strides, c10::kFloat);
  auto* const to = y.mutable_data_ptr<float>();
  if (!fitting) {
    row_product_->run(x.const_data_ptr<float>(), to, rows, {});
    return apply(y, post_ops_, operands);
  }
  c10::SmallVector<const float*, 4> others;
  for (const at::Tensor& operand : *fitting) others.push_back(operand.const_data_ptr<float>());
  run_rows(x.const_data_ptr<float>(), to, rows, others);
  const auto noted = [&](size_t i, float) { return bound_of(i == 0 ? x : (*fitting)[i - 1]); };
  note_bound(y, bound_of_result(post_ops_, noted).value_or(kInfinity));  // its memory may have that of an operand
  return y;
}

void Fused::expect(at::IntArrayRef sizes) const {
  if (!takes(sizes) || c10::multiply_integers(sizes) == 0) return;
  if (const int64_t count = rows_taken(sizes)) {
    row_product_->expect(count);
  } else {
    prepared_whole(sizes, summing_);
  }
}

// Runs the primitive from memory to memory, with that of one operand for each Add and Mul.
void Fused::execute(const Prepared& p, char* x, char* y, Steps steps, Operands operands) const {
  Call call(p.frames);
  call.with(DNNL_ARG_SRC, p.source, x).with(DNNL_ARG_WEIGHTS, p.weight.memory).with(DNNL_ARG_DST, p.result, y);
  if (lent_bias_) call.with(DNNL_ARG_BIAS, lent_bias_);
  auto operand = operands.begin();
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind != PostOp::Kind::Add && steps[i].kind != PostOp::Kind::Mul) continue;
    call.with(DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1, p.result, *operand++);
  }
  {
    const ThreadLimit limit(p.threads);
    call.run(p.primitive, p.scratchpad);
  }
  if (!p.rest) return;
  for (char*& data : operands) data += p.result.get_size();
  execute(*p.rest, x + p.source.get_size(), y + p.result.get_size(), steps, std::move(operands));
}

// Runs the primitive with one operand for each step that is no activation. A Sum's becomes the result.
at::Tensor Fused::execute(const Prepared& p, const at::Tensor& x, Steps steps, at::TensorList operands) const {
  const bool sums = !steps.empty() && steps.front().kind == PostOp::Kind::Sum;
  at::Tensor y = sums ? operands.front() : work_tensor(p.sizes, p.strides, result_);
  Operands others;
  for (const at::Tensor& operand : operands.slice(sums ? 1 : 0)) others.push_back(data_of(operand));
  execute(p, data_of(x), data_of(y), steps, std::move(others));
  return y;
}

// Computes all in one primitive. Returns none where there is no such primitive, an operand is of another form, or a NaN
// could be lost.
std::optional<at::Tensor> Fused::run_fused(const at::Tensor& x, at::TensorList operands) const {
  const Steps steps = !operands.empty() && is_last_reference(operands.front()) ? summing_ : post_ops_;
  const std::shared_ptr<const Prepared> p = prepared(x.sizes(), steps);
  const auto fitting =
      p->primitive && operands.size() == operands_ ? arranged_as(p->sizes, p->strides, operands) : std::nullopt;
  if (!fitting) return {};
  const auto bound_of_operand = [&](size_t i, float enough) { return bound(i == 0 ? x : (*fitting)[i - 1], enough); };
  const auto result_bound = bound_of_result(steps, bound_of_operand);
  if (!result_bound) return {};
  at::Tensor y = execute(*p, x, steps, *fitting);
  note_bound(y, *result_bound);
  return y;
}

std::optional<at::Tensor> Fused::run_without_steps(const at::Tensor& x) const {
  const std::shared_ptr<const Prepared> p = prepared(x.sizes(), {});
  if (!p->primitive) return {};
  at::Tensor y = execute(*p, x, {}, {});
  note_bound(y, kInfinity);
  return y;
}

// Takes the first of the ways that there is: as a product of rows, in one primitive, by a primitive for all but the
// steps, by ATen.
at::Tensor Fused::run(const at::Tensor& given, at::TensorList operands) const {
  if (is_plain(given, form_.scalar_type()) && takes(given.sizes())) {
    const at::Tensor x = arranged(given, strides(given.sizes()));
    if (const int64_t rows = rows_taken(given.sizes())) return run_rows(x, rows, operands);
    if (auto y = run_fused(x, operands)) return *std::move(y);
    if (auto y = run_without_steps(x)) return apply(*std::move(y), post_ops_, operands);
  }
  return apply(by_aten(given).to(result_), post_ops_, operands);
}

// A product of known sizes, all of whose steps are fused: of rows, or by a primitive.
class Fused::PlannedProduct : public PlannedCall {
 public:
  PlannedProduct(c10::intrusive_ptr<Fused> fused, int64_t rows, std::shared_ptr<const Prepared> prepared,
                 std::shared_ptr<const Prepared> summing, const at::Tensor& x)
      : fused_(std::move(fused)),
        rows_(rows),
        prepared_(std::move(prepared)),
        summing_(std::move(summing)),
        sizes_(x.sizes()),
        strides_(fused_->strides(x.sizes())),
        given_(x.strides()),
        is_arranged_(has_strides(x, strides_)) {}

  // Gives the memory for x in the layout that the primitive takes, where x has another one.
  size_t work_bytes() const override {
    if (is_arranged_) return 0;
    return at::detail::computeStorageNbytes(sizes_, strides_, c10::elementSize(fused_->form_.scalar_type()));
  }

  // A Sum takes the memory of what is added.
  std::vector<Over> over() const override {
    if (fused_->summing_.empty() || fused_->summing_.front().kind != PostOp::Kind::Sum) return {};
    if (rows_ > 0 && !fused_->row_product_->adds_in_place(rows_)) return {};
    return {{.result = fused_->operands_ + 1, .argument = 1}};
  }

  void run(std::span<const TensorPlace> places) const override {
    if (is_arranged_) return run_arranged(places);
    std::vector<TensorPlace> of_arranged(places.begin(), places.end());
    of_arranged.front() = {places.back().data, places.front().bound};
    copy_into(at::from_blob(places.back().data, sizes_, strides_, fused_->form_.scalar_type()),
              at::from_blob(places.front().data, sizes_, given_, fused_->form_.scalar_type()));
    run_arranged(of_arranged);
  }

 private:
  void run_arranged(std::span<const TensorPlace> places) const {
    if (rows_ > 0) return run_rows(places);
    const TensorPlace &x = places.front(), &y = places[fused_->operands_ + 1];
    const auto bound_of_place = [&](size_t i, float enough) {
      const TensorPlace& place = places[i];
      if (*place.bound <= enough) return *place.bound;
      const int64_t count = c10::multiply_integers(i == 0 ? at::IntArrayRef(sizes_) : prepared_->sizes);
      return largest(place.data, count, i == 0 ? fused_->form_.scalar_type() : fused_->result_);
    };
    const auto bound = fused_->bound_of_result(fused_->post_ops_, bound_of_place);
    if (!bound) return run_step_by_step(places);
    const bool sums = fused_->operands_ > 0 && places[1].data == y.data;
    Operands operands;
    for (const TensorPlace& place : places.subspan(1, fused_->operands_).subspan(sums ? 1 : 0))
      operands.push_back(place.data);
    fused_->execute(sums ? *summing_ : *prepared_, x.data, y.data, sums ? fused_->summing_ : fused_->post_ops_,
                    std::move(operands));
    *y.bound = *bound;
  }

  void run_rows(std::span<const TensorPlace> places) const {
    c10::SmallVector<const float*, 4> operands;
    for (const TensorPlace& place : places.subspan(1, fused_->operands_)) operands.push_back(place.as<float>());
    const TensorPlace& y = places[fused_->operands_ + 1];
    fused_->run_rows(places.front().as<float>(), y.as<float>(), rows_, operands);
    const auto noted = [&](size_t i, float) { return *places[i].bound; };
    *y.bound = fused_->bound_of_result(fused_->post_ops_, noted).value_or(kInfinity);
  }

  // Runs the primitive without the steps, and the steps after it, where one of them would lose a NaN.
  void run_step_by_step(std::span<const TensorPlace> places) const {
    const at::Tensor x = at::from_blob(places.front().data, sizes_, strides_, fused_->form_.scalar_type());
    const auto of_result = [&](const TensorPlace& place) {
      return at::from_blob(place.data, prepared_->sizes, prepared_->strides, fused_->result_);
    };
    std::vector<at::Tensor> operands;
    for (const TensorPlace& place : places.subspan(1, fused_->operands_)) operands.push_back(of_result(place));
    const auto product = fused_->run_without_steps(x);
    const at::Tensor y = product ? *product : fused_->by_aten(x).to(fused_->result_);
    of_result(places[fused_->operands_ + 1]).copy_(apply(y, fused_->post_ops_, operands));
    *places[fused_->operands_ + 1].bound = kInfinity;
  }

  const c10::intrusive_ptr<Fused> fused_;
  const int64_t rows_;  // 0 where a primitive computes
  const std::shared_ptr<const Prepared> prepared_, summing_;
  const at::DimVector sizes_, strides_, given_;  // of x; its strides as it is taken, and as it comes
  const bool is_arranged_;
};

std::unique_ptr<PlannedCall> Fused::planned(const at::Tensor& x, at::TensorList operands, const at::Tensor& y) const {
  if (!is_plain(x, form_.scalar_type()) || !takes(x.sizes()) || operands.size() != operands_) return {};
  const auto self = c10::intrusive_ptr<Fused>::reclaim_copy(const_cast<Fused*>(this));
  const int64_t rows = rows_taken(x.sizes());
  std::shared_ptr<const Prepared> p, summing;
  std::vector<int64_t> sizes, strides;
  if (rows > 0) {
    sizes = sizes_of_product(x.sizes()), strides = this->strides(sizes);
  } else {
    p = prepared(x.sizes(), post_ops_), summing = prepared(x.sizes(), summing_);
    if (!p->primitive || !summing->primitive || summing->strides != p->strides) return {};
    sizes = p->sizes, strides = p->strides;
  }
  const auto lies_well = [&](const at::Tensor& t) {
    return t.sizes() == at::IntArrayRef(sizes) && is_plain(t, result_) && has_strides(t, strides);
  };
  if (!lies_well(y) || !std::ranges::all_of(operands, lies_well)) return {};
  return std::make_unique<PlannedProduct>(self, rows, p, summing, x);
}

}  // namespace onnxtorch::onednn
