#include "lower/row_attention.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/work_memory.h"
#include "lower/attention.h"
#include "lower/plain.h"
#include "passes/registered.h"
#include "passes/walk.h"
#include "translate/writes.h"

namespace onnxtorch {
namespace {

using at::Tensor;

bool lies_side_by_side(const Tensor& t, int64_t dim) { return t.stride(dim) == 1 || t.size(dim) == 1; }

// Where a tensor has the matrix of this number in a batch of matrices.
int64_t offset_of_matrix(const Tensor& t, int64_t number) {
  int64_t offset = 0;
  for (int64_t dim = t.dim() - 3; dim >= 0; --dim) {
    offset += number % t.size(dim) * t.stride(dim);
    number /= t.size(dim);
  }
  return offset;
}

// As ATen's operator of this name: a row of which the mask hides every key becomes zeros.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const std::optional<Tensor>& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool enable_gqa) {
  const auto by_aten = [&] {
    return at::scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa);
  };
  const bool is_of_heads = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  if (!is_of_heads || query.size(2) != 1 || is_causal || dropout_p != 0) return by_aten();
  const int64_t batch = query.size(0), heads = query.size(1), shared = key.size(1), count = key.size(2);
  const bool sizes_fit = key.size(0) == batch && value.size(0) == batch && value.size(1) == shared &&
                         value.size(2) == count && key.size(3) == query.size(3) &&
                         (shared == heads || (enable_gqa && shared > 0 && heads % shared == 0));
  const Tensor columns = key.transpose(-2, -1), mask = attn_mask ? added_mask(*attn_mask, c10::kFloat) : Tensor();
  const bool mask_fits = !mask.defined() || at::is_expandable_to(mask.sizes(), {batch, heads, 1, count});
  if (!sizes_fit || !mask_fits || !is_of_rows(query, columns, value, mask)) return by_aten();

  const auto grouped = [&](const Tensor& t) { return t.unflatten(1, {shared, heads / shared}); };
  const Tensor result = work_tensor({batch, 1, heads, value.size(3)}, c10::kFloat).transpose(1, 2);
  attend_rows(grouped(query), columns.unsqueeze(2), value.unsqueeze(2),
              mask.defined() ? grouped(mask.expand({batch, heads, 1, count})) : mask,
              scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3)))), NanRows::ZeroWhereHidden,
              grouped(result));
  return result;
}

void register_operators() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def(
        "attention.of_aten(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p, bool "
        "is_causal, float? scale, bool enable_gqa) -> Tensor",
        scaled_dot_product_attention);
  });
}

}  // namespace

bool is_of_rows(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask) {
  return is_plain(query) && is_plain(key) && is_plain(value) && (!mask.defined() || is_plain(mask)) &&
         query.size(-2) == 1 && lies_side_by_side(query, -1) && lies_side_by_side(key, -2) &&
         lies_side_by_side(value, -1);
}

void attend_rows(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask, double scale,
                 NanRows nan, const Tensor& result) {
  constexpr int64_t kLeastWork = 1 << 15;  // for one thread
  const auto batch = result.sizes().slice(0, result.dim() - 2);
  const auto spread = [&](const Tensor& t, int64_t rows, int64_t columns) {
    std::vector<int64_t> sizes = batch.vec();
    sizes.insert(sizes.end(), {rows, columns});
    return t.expand(sizes);
  };
  const int64_t count = value.size(-2), key_size = query.size(-1), value_size = value.size(-1);
  const Tensor queries = spread(query, 1, key_size), keys = spread(key, key_size, count),
               values = spread(value, count, value_size), masks = mask.defined() ? spread(mask, 1, count) : mask;
  const auto attend_one = [&](int64_t number, float* weights) {
    const auto at = [number](const Tensor& t) { return t.const_data_ptr<float>() + offset_of_matrix(t, number); };
    const Attended to{.keys = at(keys),
                      .values = at(values),
                      .mask = masks.defined() ? at(masks) : nullptr,
                      .count = count,
                      .key_size = key_size,
                      .value_size = value_size,
                      .key_stride = keys.stride(-1),
                      .value_stride = values.stride(-2),
                      .mask_stride = masks.defined() ? masks.stride(-1) : 0,
                      .scale = static_cast<float>(scale),
                      .nan = nan};
    attend(at(queries), result.mutable_data_ptr<float>() + offset_of_matrix(result, number), to, weights);
  };
  const int64_t work = count * (key_size + value_size);
  at::parallel_for(0, c10::multiply_integers(batch), std::max<int64_t>(1, kLeastWork / work),
                   [&](int64_t begin, int64_t end) {
                     std::vector<float> weights(count);
                     for (int64_t i = begin; i < end; ++i) attend_one(i, weights.data());
                   });
}

void replace_attention(Program& program) {
  register_operators();
  for_each_node(program.graph->block(), [](torch::jit::Node* node) {
    if (node->kind() == c10::aten::scaled_dot_product_attention) replace(node, "onnx_torch::attention", node->inputs());
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
