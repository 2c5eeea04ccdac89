#include "lower/onednn/product.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <bit>

#include "kernels/arrange.h"
#include "kernels/work_memory.h"
#include "lower/onednn/primitives.h"
#include "lower/row_attention.h"
#include "lower/rows.h"

namespace onnxtorch::onednn {
namespace {

constexpr auto kFloat = dnnl::memory::data_type::f32;
constexpr int64_t kMostDims = 6;

struct PreparedProduct {
  dnnl::primitive primitive;
  dnnl::memory::desc a, b, added, result, scratchpad;
  std::shared_ptr<Frames> frames = std::make_shared<Frames>();
};

dnnl::memory::desc described(const at::Tensor& t) { return {t.sizes().vec(), kFloat, t.strides().vec()}; }

// With as many dimensions as asked for, and strides that a primitive takes: one of the last two is 1, none is 0 but
// where the size is 1.
at::Tensor with_dims(at::Tensor t, int64_t dims) {
  while (t.dim() < dims) t = t.unsqueeze(0);
  bool plain = t.stride(-1) == 1 || t.stride(-2) == 1;
  for (int64_t i = 0; i < t.dim(); ++i) plain = plain && (t.stride(i) > 0 || t.size(i) == 1);
  return plain ? t : contiguous(t);
}

bool is_matrix(const at::Tensor& t) { return is_plain(t) && t.dim() >= 2 && t.dim() <= kMostDims; }

PreparedProduct prepared(const at::Tensor& a, const at::Tensor& b, const at::Tensor& added, const at::Tensor& result,
                         double scale) {
  dnnl::post_ops steps;
  if (scale != 1) steps.append_eltwise(dnnl::algorithm::eltwise_linear, static_cast<float>(scale), 0);
  if (added.defined()) steps.append_binary(dnnl::algorithm::binary_add, described(added));
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(steps);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc description(engine(), described(a), described(b), described(result), attributes);
  if (is_reference(description)) return {};
  return {dnnl::matmul(description),  description.src_desc(),
          description.weights_desc(), added.defined() ? described(added) : dnnl::memory::desc(),
          description.dst_desc(),     description.scratchpad_desc()};
}

// Computes result = a @ b * scale + added, if oneDNN can. All have the same number of dimensions.
bool compute(const at::Tensor& a, const at::Tensor& b, const at::Tensor& added, const at::Tensor& result,
             double scale) {
  using Key = std::vector<int64_t>;
  static Recent<Key, PreparedProduct> recent(256);
  Key key;
  for (const at::Tensor* t : {&a, &b, &added, &result}) {
    if (!t->defined()) continue;
    key.insert(key.end(), t->sizes().begin(), t->sizes().end());
    key.insert(key.end(), t->strides().begin(), t->strides().end());
  }
  key.push_back(added.defined());
  key.push_back(std::bit_cast<int64_t>(scale));
  key.push_back(at::get_num_threads());  // a primitive divides its work when it is made
  const auto p = recent.get(key, [&] { return prepared(a, b, added, result, scale); });
  if (!p->primitive) return false;

  Call call(p->frames);
  call.with(DNNL_ARG_SRC, p->a, a).with(DNNL_ARG_WEIGHTS, p->b, b).with(DNNL_ARG_DST, p->result, result);
  if (added.defined()) {
    const int place = scale != 1 ? 1 : 0;
    call.with(DNNL_ARG_ATTR_MULTIPLE_POST_OP(place) | DNNL_ARG_SRC_1, p->added, added);
  }
  call.run(p->primitive, p->scratchpad);
  return true;
}

// The sizes of the product of matrices of these sizes; none where they do not fit together.
std::optional<std::vector<int64_t>> product_sizes(at::IntArrayRef a, at::IntArrayRef b) {
  if (a.back() != b[b.size() - 2]) return {};
  const auto batch_a = a.slice(0, a.size() - 2), batch_b = b.slice(0, b.size() - 2);
  if (!at::are_expandable(batch_a, batch_b)) return {};
  std::vector<int64_t> sizes = at::infer_size(batch_a, batch_b);
  sizes.push_back(a[a.size() - 2]);
  sizes.push_back(b.back());
  return sizes;
}

}  // namespace

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  if (!is_matrix(a) || !is_matrix(b)) return at::matmul(a, b);
  const auto sizes = product_sizes(a.sizes(), b.sizes());
  if (!sizes) return at::matmul(a, b);
  const auto dims = static_cast<int64_t>(sizes->size());
  const at::Tensor result = work_tensor(*sizes, a.scalar_type());
  return compute(with_dims(a, dims), with_dims(b, dims), {}, result, 1) ? result : at::matmul(a, b);
}

namespace {

// query @ key * scale + mask.
at::Tensor scores(const at::Tensor& query, const at::Tensor& key, const at::Tensor& mask, double scale) {
  const auto sizes = is_matrix(query) && is_matrix(key) ? product_sizes(query.sizes(), key.sizes()) : std::nullopt;
  const auto dims = static_cast<int64_t>(sizes ? sizes->size() : 0);
  const bool fits =
      !mask.defined() || (is_matrix(mask) && mask.dim() <= dims && at::is_expandable_to(mask.sizes(), *sizes));
  if (sizes && fits) {
    at::Tensor result = work_tensor(*sizes, query.scalar_type());
    const at::Tensor rows = with_dims(query, dims), columns = with_dims(key, dims);
    if (compute(rows, columns, mask.defined() ? with_dims(mask, dims) : mask, result, scale)) return result;
    if (mask.defined() && compute(rows, columns, {}, result, scale)) return result.add_(mask);
  }
  const at::Tensor scaled = at::matmul(at::mul(query, scale), key);
  return mask.defined() ? at::add(scaled, mask) : scaled;
}

// A row of a softmax is NaN as a whole.
at::Tensor zeros_for_nan(const at::Tensor& weights) {
  if (weights.numel() == 0 || !at::isnan(weights.select(-1, 0)).any().item<bool>()) return weights;
  return at::nan_to_num(weights, 0.0);
}

// The softmax of the scores, which nothing needs any more.
at::Tensor weights_of(const at::Tensor& scores, bool without_nan) {
  const bool in_place = is_plain(scores) && scores.is_contiguous();
  const at::Tensor weights = in_place ? softmax_into(scores, scores) : at::softmax(scores, -1);
  return without_nan ? zeros_for_nan(weights) : weights;
}

// The sizes of (query @ key + mask) @ value, where primitives take them.
std::optional<std::vector<int64_t>> attention_sizes(const at::Tensor& query, const at::Tensor& key,
                                                    const at::Tensor& mask, const at::Tensor& value) {
  if (!is_matrix(query) || !is_matrix(key) || !is_matrix(value)) return {};
  const auto weights = product_sizes(query.sizes(), key.sizes());
  const bool fits = weights && (!mask.defined() || at::is_expandable_to(mask.sizes(), *weights));
  return fits ? product_sizes(*weights, value.sizes()) : std::nullopt;
}

// Contiguous, but of four dimensions in the order of memory that what follows wants: the heads of a position side by
// side.
at::Tensor empty_result(const std::vector<int64_t>& sizes, c10::ScalarType dtype) {
  if (sizes.size() != 4) return work_tensor(sizes, dtype);
  return work_tensor({sizes[0], sizes[2], sizes[1], sizes[3]}, dtype).transpose(1, 2);
}

// How many of the query's rows to take at once, so that their scores are still in cache when they are used.
int64_t rows_at_once(at::IntArrayRef result, int64_t keys) {
  constexpr int64_t kMostScores = 1 << 19, kFewestRows = 16;
  const int64_t scores_of_row = keys * c10::multiply_integers(result.slice(0, result.size() - 2));
  return std::max(kFewestRows, kMostScores * at::get_num_threads() / scores_of_row);
}

}  // namespace

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, double scale, bool without_nan) {
  const at::Tensor added = mask.value_or(at::Tensor());
  const auto sizes = attention_sizes(query, key, added, value);
  if (!sizes) return product(weights_of(scores(query, key, added, scale), without_nan), value);

  const auto dims = static_cast<int64_t>(sizes->size());
  const int64_t rows = query.size(-2), step = rows_at_once(*sizes, key.size(-1));
  const bool mask_has_rows = added.defined() && added.dim() >= 2 && added.size(-2) != 1;
  const at::Tensor result = empty_result(*sizes, value.scalar_type());
  if (is_of_rows(query, key, value, added)) {
    attend_rows(query, key, value, added, scale, without_nan ? NanRows::Zero : NanRows::Kept, result);
    return result;
  }
  // A primitive arranges the keys for itself, each time; it is soonest done where they are transposed already.
  const at::Tensor keys = step < rows ? contiguous(key) : key;
  for (int64_t row = 0; row < rows; row += step) {
    const auto part = [&](const at::Tensor& t) { return t.narrow(-2, row, std::min(step, rows - row)); };
    const at::Tensor weights =
        weights_of(scores(part(query), keys, mask_has_rows ? part(added) : added, scale), without_nan);
    const bool done = is_matrix(weights) && weights.dim() == dims &&
                      compute(with_dims(weights, dims), with_dims(value, dims), {}, part(result), 1);
    if (!done) part(result).copy_(at::matmul(weights, value));
  }
  return result;
}

}  // namespace onnxtorch::onednn
