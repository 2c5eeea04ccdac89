#include "kernels/cpu/attention.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "base/arrange.h"
#include "base/cpu_tensor.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/product_sizes.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/composite/attention_mask.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

using at::Tensor;

int64_t stride_of(const Tensor& t, int64_t dim) { return dim < 0 || t.size(dim) == 1 ? 0 : t.stride(dim); }

Matrices matrices(const Tensor& t, size_t dims) {
  const int64_t missing = static_cast<int64_t>(dims) - t.dim();
  Strides strides;
  for (int64_t dim = 0; dim < static_cast<int64_t>(dims); ++dim) strides.push_back(stride_of(t, dim - missing));
  return {t.const_data_ptr<float>(), strides};
}

// Gives the tensor, or a copy of it, in which each row is contiguous.
Tensor in_rows(const Tensor& t) { return t.stride(-1) == 1 || t.size(-1) == 1 ? t : contiguous(t); }

// Attends with one row of each head at a time. The rows of a group of heads that share keys and values come at once.
void attend_row_by_row(const AttentionWork& work) {
  const Attended& sizes = work.sizes;
  const size_t last = work.batch.size() - 1;
  const bool is_shared = !work.batch.empty() && work.keys.strides[last] == 0 && work.values.strides[last] == 0;
  const int64_t group = is_shared ? work.batch[last] : 1, of_row = sizes.count * (sizes.key_size + sizes.value_size);
  const auto& kernels = for_this_cpu<AttentionKernels>();
  parallel_for(work.count() / group * work.rows, group * of_row, [&](int64_t begin, int64_t end) {
    const Tensor memory = work_tensor({group * sizes.count}, c10::kFloat);
    auto* const weights = memory.mutable_data_ptr<float>();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t number = i / work.rows * group;
      AttendingRows rows = work.attending(number, i % work.rows, 1);
      const auto [first, count] = rows.seen(0, sizes.count);
      if (is_shared) {
        rows.count = group;
        rows.query_stride = work.query.strides[last];
        rows.result_stride = work.result.strides[last];
      }
      const Attended to = work.attended(number).from(first);
      kernels.scores_of_rows(rows, weights, count, count, to);
      for (int64_t head = 0; head < group; ++head) {
        const AttendingRows row = work.attending(number + head, i % work.rows, 1);
        const float* const mask = row.mask ? row.mask + first * to.mask_stride : nullptr;
        kernels.softmax_of_scores(weights + head * count, mask, count, work.attended(number + head));
      }
      kernels.values_of_rows(rows, weights, count, count, to);
    }
  });
}

// Lays out keys and values for the products of many rows, unless the values lie well already.
void attend_in_panels(const AttentionWork& work) {
  const auto& kernel = for_this_cpu<AttentionKernels>();
  const auto in_panels = [&](int64_t columns) { return (columns + kernel.panel - 1) / kernel.panel * kernel.panel; };
  const Attended& sizes = work.sizes;
  const int64_t parts = (work.rows + kernel.rows - 1) / kernel.rows;
  const bool values_lie_well =
      sizes.value_size % kernel.lanes == 0 && (parts == 1 || work.values.row() <= 2 * kernel.panel);
  const int64_t keys_size = in_panels(sizes.count) * sizes.key_size,
                values_size = values_lie_well ? 0 : in_panels(sizes.value_size) * sizes.count,
                work_size = kernel.rows * (sizes.key_size + in_panels(sizes.count) + in_panels(sizes.value_size));
  const int64_t of_part = std::min(kernel.rows, work.rows) * sizes.count * (sizes.key_size + sizes.value_size);
  parallel_for(work.count() * parts, of_part, [&](int64_t begin, int64_t end) {
    const Tensor memory = work_tensor({keys_size + values_size + work_size}, c10::kFloat);
    float *const packed_keys = memory.mutable_data_ptr<float>(), *const packed_values = packed_keys + keys_size;
    Attended last = sizes;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % parts * kernel.rows;
      const Attended to = work.attended(i / parts);
      if (to.keys != last.keys) kernel.pack_keys(to, packed_keys);
      if (to.values != last.values && !values_lie_well) kernel.pack_values(to, packed_values);
      last = to;
      const Panels keys{packed_keys, kernel.panel, kernel.panel * to.key_size};
      const Panels values = values_lie_well ? Panels{to.values, to.value_stride, kernel.panel}
                                            : Panels{packed_values, kernel.panel, kernel.panel * to.count};
      kernel.attend(work.attending(i / parts, first, std::min(kernel.rows, work.rows - first)), to, keys, values,
                    packed_values + values_size);
    }
  });
}

}  // namespace

void attend(const AttentionWork& work) {
  constexpr int64_t kFewestRows = 6;  // for which it is worthwhile to lay out keys and values
  work.rows < kFewestRows ? attend_row_by_row(work) : attend_in_panels(work);
}

namespace {

// Allocates a contiguous result, but one of four dimensions in the layout that the next operator wants: the heads of a
// position are adjacent.
Tensor empty_result(at::IntArrayRef sizes) {
  if (sizes.size() != 4) return work_tensor(sizes, c10::kFloat);
  return work_tensor(sizes, {sizes[1] * sizes[2] * sizes[3], sizes[3], sizes[1] * sizes[3], 1}, c10::kFloat);
}

bool are_plain(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask) {
  return is_plain(query) && is_plain(key) && is_plain(value) && (!mask.defined() || is_plain(mask));
}

// The memory of the tensors, which at_data fills in.
struct Data {
  const float *query, *keys, *values, *mask;
  float* result;
};

AttentionWork at_data(AttentionWork work, const Data& data) {
  work.query.data = data.query;
  work.keys.data = data.keys;
  work.values.data = data.values;
  if (work.mask) work.mask->data = data.mask;
  work.result.data = data.result;
  return work;
}

// The tensors that an operator attends with. Planned::work takes a query, keys and values with contiguous rows.
struct Operands {
  Tensor query, keys, values, mask;  // the mask may be undefined
};

// The sizes of the result, and the work as far as sizes and strides decide it; none where ATen is to compute it.
struct Planned {
  std::vector<int64_t> sizes;
  std::function<AttentionWork(const Operands&, const Tensor& result)> work;
};

Tensor attended(const Planned& planned, const Operands& given) {
  const Operands in{in_rows(given.query), in_rows(given.keys), in_rows(given.values), given.mask};
  Tensor result = empty_result(planned.sizes);
  attend(planned.work(in, result));
  return result;
}

// Makes a call whose places are those of the query, the key, the value, the mask if there is one, and the result.
std::unique_ptr<PlannedCall> planned_call(const Planned& planned_work, const Operands& given, const Tensor& result) {
  for (const Tensor& t : {given.query, given.keys, given.values}) {
    if (!in_rows(t).is_same(t)) return {};
  }
  return planned([work = planned_work.work(given, result)](std::span<const TensorPlace> places) {
    attend(at_data(work, {places[0].as<float>(), places[1].as<float>(), places[2].as<float>(),
                          work.mask ? places[3].as<float>() : nullptr, places.back().as<float>()}));
  });
}

// Plans ATen's scaled_dot_product_attention: a row of which the mask hides every key becomes zeros.
std::optional<Planned> of_heads(const Operands& given, double dropout_p, bool is_causal, std::optional<double> scale,
                                bool enable_gqa) {
  const auto& [query, key, value, mask] = given;
  const bool has_heads = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  if (!has_heads || (is_causal && mask.defined()) || dropout_p != 0) return {};
  const int64_t batch = query.size(0), heads = query.size(1), rows = query.size(2), shared = key.size(1),
                count = key.size(2);
  const bool sizes_fit = key.size(0) == batch && value.size(0) == batch && value.size(1) == shared &&
                         value.size(2) == count && key.size(3) == query.size(3) &&
                         (shared == heads || (enable_gqa && shared > 0 && heads % shared == 0));
  const bool mask_fits = !mask.defined() || at::is_expandable_to(mask.sizes(), {batch, heads, rows, count});
  if (!sizes_fit || !mask_fits || !are_plain(query, key, value, mask)) return {};
  const auto used_scale = static_cast<float>(scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3)))));
  return Planned{{batch, heads, rows, value.size(3)}, [=](const Operands& in, const Tensor& result) {
                   const int64_t group = heads / shared;  // heads, which share keys and values
                   const auto grouped = [&](const Tensor& t, bool is_shared) {
                     Matrices m = matrices(t, 4);
                     const int64_t head = m.strides[1];
                     m.strides[1] = is_shared ? head : group * head;
                     m.strides.insert(m.strides.begin() + 2, is_shared ? 0 : head);
                     return m;
                   };
                   return AttentionWork{
                       .batch = {batch, shared, group},
                       .rows = rows,
                       .query = grouped(in.query, false),
                       .keys = grouped(in.keys, true),
                       .values = grouped(in.values, true),
                       .mask = in.mask.defined() ? std::optional(grouped(in.mask, false)) : std::nullopt,
                       .result = grouped(result, false),
                       .sizes = {.count = count,
                                 .key_size = in.query.size(3),
                                 .value_size = in.values.size(3),
                                 .scale = used_scale,
                                 .nan = NanRows::ZeroWhereHidden},
                       .keys_of_first = is_causal ? std::optional(int64_t{1}) : std::nullopt};
                 }};
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const std::optional<Tensor>& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa) {
  const Operands given{query, key, value, attn_mask ? added_mask(*attn_mask, c10::kFloat) : Tensor()};
  const auto planned = of_heads(given, dropout_p, is_causal, scale, enable_gqa);
  return planned
             ? attended(*planned, given)
             : at::scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
}

// Plans softmax(query @ key * scale + mask) @ value. Rows of weights that are NaN become zeros if `without_nan`. The
// keys, which are columns of the product, are given as rows.
std::optional<Planned> of_products(const Operands& given, double scale, bool without_nan) {
  const auto& [query, keys, value, mask] = given;
  const auto weights = keys.dim() < 2 ? std::nullopt : product_sizes(query.sizes(), keys.transpose(-2, -1).sizes());
  const bool mask_fits = weights && (!mask.defined() || at::is_expandable_to(mask.sizes(), *weights));
  const auto sizes = mask_fits ? product_sizes(*weights, value.sizes()) : std::nullopt;
  if (!sizes || !are_plain(query, keys, value, mask)) return {};
  return Planned{{sizes->begin(), sizes->end()},
                 [=, dims = sizes->size(), batch = std::vector<int64_t>(sizes->begin(), sizes->end() - 2)](
                     const Operands& in, const Tensor& result) {
                   return AttentionWork{
                       .batch = batch,
                       .rows = in.query.size(-2),
                       .query = matrices(in.query, dims),
                       .keys = matrices(in.keys, dims),
                       .values = matrices(in.values, dims),
                       .mask = in.mask.defined() ? std::optional(matrices(in.mask, dims)) : std::nullopt,
                       .result = matrices(result, dims),
                       .sizes = {.count = in.keys.size(-2),
                                 .key_size = in.keys.size(-1),
                                 .value_size = in.values.size(-1),
                                 .scale = static_cast<float>(scale),
                                 .nan = without_nan ? NanRows::Zero : NanRows::Kept}};
                 }};
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
                 double scale, bool without_nan) {
  const Operands given{query, key.dim() < 2 ? key : key.transpose(-2, -1), value, mask.value_or(Tensor())};
  if (const auto planned = of_products(given, scale, without_nan)) return attended(*planned, given);
  const Tensor product = at::matmul(at::mul(query, scale), key);
  const Tensor softmax = at::softmax(mask ? at::add(product, *mask) : product, -1);
  return at::matmul(without_nan ? at::where(at::isnan(softmax), 0, softmax) : softmax, value);
}

// Tells whether a reshape to these sizes makes one dimension of the second and the third of five.
bool joins_heads(const Tensor& t, at::IntArrayRef sizes) {
  if (t.dim() != 5 || t.numel() == 0) return false;
  const at::DimVector wanted{t.size(0), t.size(1) * t.size(2), t.size(3), t.size(4)};
  return at::infer_size_dv(sizes, t.numel()) == wanted;
}

// Plans the same for keys and values [batch, shared heads, heads of a group, count, size]: the heads of a group share
// them, so that nothing is copied for each.
std::optional<Planned> of_groups(const Operands& given, double scale, bool without_nan) {
  const auto& [query, keys, value, mask] = given;
  const int64_t shared = keys.size(1), group = keys.size(2), heads = shared * group;
  if (query.dim() != 4 || query.size(1) != heads || value.size(1) != shared || value.size(2) != group) return {};
  if (mask.defined() && (mask.dim() > 4 || (mask.dim() > 2 && mask.size(-3) != 1 && mask.size(-3) != heads))) return {};
  const auto grouped = [=](const Tensor& t) { return t.unflatten(1, {shared, group}); };
  const auto of_grouped = [=](const Operands& in) {
    const bool has_heads = in.mask.defined() && in.mask.dim() > 2, is_broadcast = has_heads && in.mask.size(-3) == 1;
    const Tensor masks = is_broadcast ? in.mask.unsqueeze(-3)
                         : has_heads  ? in.mask.unflatten(-3, {shared, group})
                                      : in.mask;
    return Operands{grouped(in.query), in.keys, in.values, masks};
  };
  const auto planned = of_products(of_grouped(given), scale, without_nan);
  if (!planned) return {};
  return Planned{{planned->sizes[0], heads, planned->sizes[3], planned->sizes[4]},
                 [=, work = planned->work](const Operands& in, const Tensor& result) {
                   return work(of_grouped(in), grouped(result));
                 }};
}

Tensor grouped_attention(const Tensor& query, const Tensor& keys, const Tensor& values, at::IntArrayRef key_sizes,
                         at::IntArrayRef value_sizes, const std::optional<Tensor>& mask, double scale,
                         bool without_nan) {
  if (joins_heads(keys, key_sizes) && joins_heads(values, value_sizes)) {
    const Operands given{query, keys, values, mask.value_or(Tensor())};
    if (const auto planned = of_groups(given, scale, without_nan)) return attended(*planned, given);
  }
  return attention(query, keys.reshape(key_sizes).transpose(-2, -1), values.reshape(value_sizes), mask, scale,
                   without_nan);
}

std::unique_ptr<PlannedCall> plan_grouped(const PlannedOperands& of) {
  const Operands given{of.tensor(0), of.tensor(1), of.tensor(2), of.tensor(5)};
  if (given.mask.defined() && given.mask.scalar_type() != c10::kFloat) return {};
  if (!joins_heads(given.keys, of.arguments[3].toIntVector())) return {};
  if (!joins_heads(given.values, of.arguments[4].toIntVector())) return {};
  const auto work = of_groups(given, of.arguments[6].toDouble(), of.arguments[7].toBool());
  return work ? planned_call(*work, given, of.results[0]) : nullptr;
}

// Plans a call of either overload.
std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const bool is_aten_s = of.arguments.size() == 8;
  const Tensor key = of.tensor(1), mask = of.tensor(3);
  if (key.dim() < 2 || (mask.defined() && mask.scalar_type() != c10::kFloat)) return {};
  const Operands given{of.tensor(0), is_aten_s ? key : key.transpose(-2, -1), of.tensor(2), mask};
  const auto work = is_aten_s ? of_heads(given, of.arguments[4].toDouble(), of.arguments[5].toBool(),
                                         of.arguments[6].toOptional<double>(), of.arguments[7].toBool())
                              : of_products(given, of.arguments[4].toDouble(), of.arguments[5].toBool());
  return work ? planned_call(*work, given, of.results[0]) : nullptr;
}

}  // namespace

void register_attention() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("attention(Tensor query, Tensor key, Tensor value, Tensor? mask, float scale, bool without_nan) -> Tensor",
          attention);
    m.def(
        "attention.of_aten(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p, bool "
        "is_causal, float? scale, bool enable_gqa) -> Tensor",
        scaled_dot_product_attention);
    m.def(
        "grouped_attention(Tensor query, Tensor keys, Tensor values, int[] key_sizes, int[] value_sizes, Tensor? "
        "mask, float scale, bool without_nan) -> Tensor",
        grouped_attention);
  });
  register_planner("onnx_torch::attention", plan);
  register_planner("onnx_torch::grouped_attention", plan_grouped);
}

}  // namespace onnxtorch
