#include "kernels/simd/linear_attention.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "base/cpu_tensor.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/call_script.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

using at::Tensor;

// The arguments, of which decay and beta may be undefined: query [time, batch, heads, queries of a group, key size], key
// [time, batch, heads, key size], value likewise, decay [time, batch, heads, key size or 1], beta [time, batch, heads or
// 1], and the state [batch, heads, key size, value size].
struct Operands {
  Tensor query, key, value, decay, beta, state;
};

// The steps of all heads. The pointers are those of the first head's first column.
struct Heads {
  LinearAttentionSteps steps;  // of any head
  int64_t batch, heads, value_size;
  struct Strides {
    int64_t batch = 0, head = 0;
  };
  Strides query, key, value, decay, beta, past;
};

bool has_dense_rows(const Tensor& t) { return t.size(-1) == 1 || t.stride(-1) == 1; }

Heads::Strides strides_of(const Tensor& t) {
  return t.defined() ? Heads::Strides{t.stride(1), t.size(2) == 1 ? 0 : t.stride(2)} : Heads::Strides{};
}

int64_t step_of(const Tensor& t) { return t.defined() ? t.stride(0) : 0; }

// Gives the steps; none where the operands are others than the kernel's.
std::optional<Heads> heads_of(const Operands& of) {
  const auto& [query, key, value, decay, beta, state] = of;
  for (const Tensor* t : {&query, &key, &value, &state})
    if (!is_plain(*t) || !has_dense_rows(*t)) return {};
  if (query.dim() != 5 || key.dim() != 4 || value.dim() != 4 || state.dim() != 4) return {};
  const int64_t time = key.size(0), batch = key.size(1), heads = key.size(2), size = key.size(3);
  if (query.sizes() != at::IntArrayRef{time, batch, heads, query.size(3), size} ||
      (query.size(3) > 1 && query.stride(3) != size) ||
      value.sizes() != at::IntArrayRef{time, batch, heads, value.size(3)} ||
      state.sizes() != at::IntArrayRef{batch, heads, size, value.size(3)}) {
    return {};
  }
  if (decay.defined() && (!is_plain(decay) || decay.dim() != 4 || !has_dense_rows(decay) ||
                          (decay.sizes() != key.sizes() && decay.sizes() != at::IntArrayRef{time, batch, heads, 1}))) {
    return {};
  }
  if (beta.defined() && (!is_plain(beta) || (beta.sizes() != at::IntArrayRef{time, batch, heads} &&
                                             beta.sizes() != at::IntArrayRef{time, batch, 1}))) {
    return {};
  }
  const int64_t queries = query.size(3), value_size = value.size(3);
  return Heads{.steps = {.steps = time,
                         .key_size = size,
                         .queries = queries,
                         .query = {nullptr, step_of(query)},
                         .key = {nullptr, step_of(key)},
                         .value = {nullptr, step_of(value)},
                         .decay = {nullptr, step_of(decay)},
                         .decay_row = decay.defined() && decay.size(3) > 1,
                         .beta = {nullptr, step_of(beta)},
                         .past_row = state.stride(2),
                         .result_step = heads * queries * value_size,
                         .result_query = value_size,
                         .present_row = value_size},
               .batch = batch,
               .heads = heads,
               .value_size = value_size,
               .query = strides_of(query),
               .key = strides_of(key),
               .value = strides_of(value),
               .decay = strides_of(decay),
               .beta = strides_of(beta),
               .past = {state.stride(0), state.stride(1)}};
}

// Does the steps of each head, some columns at a time. The results are contiguous.
void compute(const Heads& of) {
  static constexpr float kNoDecay = 1;
  const auto& kernels = for_this_cpu<LinearAttentionKernels>();
  const LinearAttentionSteps& all = of.steps;
  const int64_t blocks = (of.value_size + kernels.most_columns - 1) / kernels.most_columns;
  const int64_t cost = all.steps * all.key_size * kernels.most_columns * (all.queries + 2) / 4;
  parallel_for(of.batch * of.heads * blocks, cost, [&](int64_t begin, int64_t end) {
    std::vector<float> room(all.key_size * kernels.most_columns);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i % blocks * kernels.most_columns, head = i / blocks % of.heads, b = i / blocks / of.heads;
      const auto move = [&](LinearAttentionSteps::Rows& rows, const Heads::Strides& by, int64_t further = 0) {
        if (rows.data) rows.data += b * by.batch + head * by.head + further;
      };
      LinearAttentionSteps steps = all;
      steps.columns = std::min(kernels.most_columns, of.value_size - column);
      move(steps.query, of.query);
      move(steps.key, of.key);
      move(steps.value, of.value, column);
      move(steps.decay, of.decay);
      move(steps.beta, of.beta);
      if (!steps.decay.data) steps.decay.data = &kNoDecay;
      steps.past += b * of.past.batch + head * of.past.head + column;
      steps.result += b * all.steps * all.result_step + head * all.queries * of.value_size + column;
      steps.present += (b * of.heads + head) * all.key_size * of.value_size + column;
      kernels.attend(steps, room.data());
    }
  });
}

const float* data_of(const Tensor& t) { return t.defined() ? t.const_data_ptr<float>() : nullptr; }

std::tuple<Tensor, Tensor> linear_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                            const std::optional<Tensor>& decay, const std::optional<Tensor>& beta,
                                            const Tensor& state) {
  const Operands operands{query, key, value, decay.value_or(Tensor()), beta.value_or(Tensor()), state};
  std::optional<Heads> heads = heads_of(operands);
  if (!heads) {
    std::vector<c10::IValue> stack{query, key, value, decay, beta, state};
    call_script("onnx_torch::linear_attention_scan", stack);
    return {stack[0].toTensor(), stack[1].toTensor()};
  }
  const LinearAttentionSteps& steps = heads->steps;
  const Tensor result =
      work_tensor({heads->batch, steps.steps, heads->heads, steps.queries, heads->value_size}, c10::kFloat);
  const Tensor present = work_tensor(state.sizes(), c10::kFloat);
  heads->steps.query.data = data_of(query);
  heads->steps.key.data = data_of(key);
  heads->steps.value.data = data_of(value);
  heads->steps.decay.data = data_of(operands.decay);
  heads->steps.beta.data = data_of(operands.beta);
  heads->steps.past = data_of(state);
  heads->steps.result = result.mutable_data_ptr<float>();
  heads->steps.present = present.mutable_data_ptr<float>();
  compute(*heads);
  return {result, present};
}

std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const Operands operands{of.tensor(0), of.tensor(1), of.tensor(2), of.tensor(3), of.tensor(4), of.tensor(5)};
  const auto heads = heads_of(operands);
  if (!heads || !of.results[0].is_contiguous() || !of.results[1].is_contiguous()) return {};
  const bool has_decay = operands.decay.defined(), has_beta = operands.beta.defined();
  return planned([heads = *heads, has_decay, has_beta](std::span<const TensorPlace> places) {
    Heads here = heads;
    auto place = places.begin();
    const auto next = [&] { return (place++)->as<float>(); };
    here.steps.query.data = next();
    here.steps.key.data = next();
    here.steps.value.data = next();
    if (has_decay) here.steps.decay.data = next();
    if (has_beta) here.steps.beta.data = next();
    here.steps.past = next();
    here.steps.result = next();
    here.steps.present = next();
    compute(here);
  });
}

}  // namespace

void register_linear_attention() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def(
        "linear_attention(Tensor query, Tensor key, Tensor value, Tensor? decay, Tensor? beta, Tensor state) -> "
        "(Tensor, Tensor)",
        linear_attention);
  });
  register_planner("onnx_torch::linear_attention", plan);
}

}  // namespace onnxtorch
