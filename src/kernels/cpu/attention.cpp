#include "kernels/simd/attention.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <c10/util/SmallVector.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/arrange.h"
#include "base/cpu_tensor.h"
#include "base/parallel.h"
#include "base/product_sizes.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/composite/attention_mask.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

using at::Tensor;

using Strides = c10::SmallVector<int64_t, 6>;

// A tensor's matrices, in the order of the result's: strides for each dimension of the batch, from row to row, and from
// column to column; 0 where a dimension is broadcast.
struct Matrices {
  const float* data;
  Strides strides;

  int64_t row() const { return strides.end()[-2]; }
  int64_t column() const { return strides.back(); }
};

int64_t stride_of(const Tensor& t, int64_t dim) { return dim < 0 || t.size(dim) == 1 ? 0 : t.stride(dim); }

Matrices matrices(const Tensor& t, size_t dims) {
  const int64_t missing = static_cast<int64_t>(dims) - t.dim();
  Strides strides;
  for (int64_t dim = 0; dim < static_cast<int64_t>(dims); ++dim) strides.push_back(stride_of(t, dim - missing));
  return {t.const_data_ptr<float>(), strides};
}

// Elements of a row side by side.
Tensor in_rows(const Tensor& t) { return t.stride(-1) == 1 || t.size(-1) == 1 ? t : contiguous(t); }

// What is attended to by whom. The memory is that of tensors that live as long.
struct Work {
  std::vector<int64_t> batch;  // sizes of the result's dimensions before the last two
  int64_t rows;
  Matrices query, keys, values;
  std::optional<Matrices> mask;
  Matrices result;
  Attended sizes;
  bool is_causal = false;  // the n-th row of the query sees the first n keys

  int64_t count() const { return c10::multiply_integers(batch); }

  const float* at(const Matrices& m, int64_t number, int64_t row = 0) const {
    const float* data = m.data + row * m.row();
    for (size_t dim = batch.size(); dim-- > 0; number /= batch[dim]) data += number % batch[dim] * m.strides[dim];
    return data;
  }

  Attended attended(int64_t number) const {
    Attended to = sizes;
    to.keys = at(keys, number);
    to.values = at(values, number);
    to.key_stride = keys.row();
    to.value_stride = values.row();
    to.mask_stride = mask ? mask->column() : 0;
    return to;
  }

  AttendingRows attending(int64_t number, int64_t first, int64_t rows_at_once) const {
    return {.query = at(query, number, first),
            .result = const_cast<float*>(at(result, number, first)),
            .mask = mask ? at(*mask, number, first) : nullptr,
            .count = rows_at_once,
            .query_stride = query.row(),
            .result_stride = result.row(),
            .mask_stride = mask ? mask->row() : 0,
            .keys_of_first = is_causal ? first + 1 : sizes.count};
  }
};

void attend_row_by_row(const Work& work) {
  const Attended& sizes = work.sizes;
  const int64_t of_row = sizes.count * (sizes.key_size + sizes.value_size);
  const auto& kernels = for_this_cpu<AttentionKernels>();
  parallel_for(work.count() * work.rows, of_row, [&](int64_t begin, int64_t end) {
    std::vector<float> weights(sizes.count);
    for (int64_t i = begin; i < end; ++i) {
      const AttendingRows row = work.attending(i / work.rows, i % work.rows, 1);
      const Attended to = work.attended(i / work.rows);
      const int64_t count = std::min(sizes.count, row.keys_of_first);
      kernels.scores_of_row(row.query, weights.data(), count, to);
      kernels.softmax_of_scores(weights.data(), row.mask, count, to);
      kernels.values_of_row(weights.data(), row.result, count, to);
    }
  });
}

// Keys and values are laid out for the products of many rows, unless the values lie well already.
void attend_in_panels(const Work& work) {
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

void attend(const Work& work) {
  constexpr int64_t kFewestRows = 6;  // that are worth to lay out keys and values for
  work.rows < kFewestRows ? attend_row_by_row(work) : attend_in_panels(work);
}

// Contiguous, but of four dimensions in the order of memory that what follows wants: the heads of a position side by
// side.
Tensor empty_result(at::IntArrayRef sizes) {
  if (sizes.size() != 4) return work_tensor(sizes, c10::kFloat);
  return work_tensor(sizes, {sizes[1] * sizes[2] * sizes[3], sizes[3], sizes[1] * sizes[3], 1}, c10::kFloat);
}

bool are_plain(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask) {
  return is_plain(query) && is_plain(key) && is_plain(value) && (!mask.defined() || is_plain(mask));
}

// As ATen's operator of this name: a row of which the mask hides every key becomes zeros.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const std::optional<Tensor>& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa) {
  const auto by_aten = [&] {
    return at::scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
  };
  const bool is_of_heads = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  if (!is_of_heads || (is_causal && attn_mask) || dropout_p != 0) return by_aten();
  const int64_t batch = query.size(0), heads = query.size(1), rows = query.size(2), shared = key.size(1),
                count = key.size(2);
  const bool sizes_fit = key.size(0) == batch && value.size(0) == batch && value.size(1) == shared &&
                         value.size(2) == count && key.size(3) == query.size(3) &&
                         (shared == heads || (enable_gqa && shared > 0 && heads % shared == 0));
  const Tensor mask = attn_mask ? added_mask(*attn_mask, c10::kFloat) : Tensor();
  const bool mask_fits = !mask.defined() || at::is_expandable_to(mask.sizes(), {batch, heads, rows, count});
  if (!sizes_fit || !mask_fits || !are_plain(query, key, value, mask)) return by_aten();

  const Tensor queries = in_rows(query), keys = in_rows(key), values = in_rows(value);
  const Tensor result = empty_result({batch, heads, rows, value.size(3)});
  const int64_t group = heads / shared;  // heads, which share keys and values
  const auto grouped = [&](const Tensor& t, bool is_shared) {
    Matrices m = matrices(t, 4);
    const int64_t head = m.strides[1];
    m.strides[1] = is_shared ? head : group * head;
    m.strides.insert(m.strides.begin() + 2, is_shared ? 0 : head);
    return m;
  };
  attend({.batch = {batch, shared, group},
          .rows = rows,
          .query = grouped(queries, false),
          .keys = grouped(keys, true),
          .values = grouped(values, true),
          .mask = mask.defined() ? std::optional(grouped(mask, false)) : std::nullopt,
          .result = grouped(result, false),
          .sizes = {.count = count,
                    .key_size = query.size(3),
                    .value_size = value.size(3),
                    .scale = static_cast<float>(scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))))),
                    .nan = NanRows::ZeroWhereHidden},
          .is_causal = is_causal});
  return result;
}

// softmax(query @ key * scale + mask) @ value. Rows of weights that are NaN become zeros where there are to be none.
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask,
                 double scale, bool without_nan) {
  const Tensor added = mask.value_or(Tensor());
  const auto weights = product_sizes(query.sizes(), key.sizes());
  const bool mask_fits = weights && (!mask || at::is_expandable_to(mask->sizes(), *weights));
  const auto sizes = mask_fits ? product_sizes(*weights, value.sizes()) : std::nullopt;
  if (sizes && are_plain(query, key, value, added)) {
    const Tensor queries = in_rows(query), keys = in_rows(key.transpose(-2, -1)), values = in_rows(value);
    const Tensor result = empty_result(*sizes);
    const size_t dims = sizes->size();
    attend({.batch = {sizes->begin(), sizes->end() - 2},
            .rows = query.size(-2),
            .query = matrices(queries, dims),
            .keys = matrices(keys, dims),
            .values = matrices(values, dims),
            .mask = mask ? std::optional(matrices(added, dims)) : std::nullopt,
            .result = matrices(result, dims),
            .sizes = {.count = key.size(-1),
                      .key_size = key.size(-2),
                      .value_size = value.size(-1),
                      .scale = static_cast<float>(scale),
                      .nan = without_nan ? NanRows::Zero : NanRows::Kept}});
    return result;
  }
  const Tensor product = at::matmul(at::mul(query, scale), key);
  const Tensor softmax = at::softmax(mask ? at::add(product, *mask) : product, -1);
  return at::matmul(without_nan ? at::where(at::isnan(softmax), 0, softmax) : softmax, value);
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
  });
}

}  // namespace onnxtorch
