// Unique. Every element is first replaced by its rank among the distinct elements, so one search for equal subtensors
// serves all element types; on any device.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "kernels/string_pool.h"

namespace onnxtorch {
namespace {

using UniqueResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// The distinct entries of a tensor along its first dimension, in ascending order.
struct Groups {
  at::Tensor first;    // of each group: the index of its first member
  at::Tensor members;  // of each entry: its group
  at::Tensor counts;
};

// All NaN are one number, and the largest.
Groups group_numbers(const at::Tensor& x) {
  const auto [sorted, order] = x.sort(/*stable=*/true, /*dim=*/0, /*descending=*/false);
  const int64_t n = x.size(0);
  at::Tensor starts = at::ones_like(sorted, at::kBool);
  if (n > 1) {
    const at::Tensor previous = sorted.slice(0, 0, n - 1);
    starts.slice(0, 1).copy_(sorted.slice(0, 1).ne(previous).logical_and_(previous.isnan().logical_not_()));
  }
  const at::Tensor begins = starts.nonzero().squeeze(1);
  const at::Tensor ends = at::cat({begins.slice(0, 1), begins.new_full({n > 0}, n)});
  return {
      .first = order.index_select(0, begins),
      .members = at::empty_like(order).scatter_(0, order, starts.cumsum(0).sub_(1)),
      .counts = ends - begins,
  };
}

Groups group_rows(const at::Tensor& rows) {
  const auto [distinct, members, counts] =
      at::unique_dim(rows, 0, /*sorted=*/true, /*return_inverse=*/true, /*return_counts=*/true);
  const at::Tensor positions = at::arange(rows.size(0), members.options());
  const at::Tensor first = at::full_like(counts, rows.size(0)).scatter_reduce_(0, members, positions, "amin");
  return {first, members, counts};
}

Groups group_elements(const at::Tensor& x) {
  if (!x.is_complex()) return group_numbers(x);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor parts = at::view_as_real(x.masked_fill(x.isnan(), c10::complex<double>(nan, nan)));
  return group_rows(group_numbers(parts.flatten()).members.view_as(parts));
}

// As in numpy, a subtensor with a NaN in it equals no other.
Groups group_subtensors(const at::Tensor& x) {
  const int64_t n = x.size(0);
  const at::Tensor elements = (x.is_complex() ? at::view_as_real(x) : x).unsqueeze(1).flatten(1);
  const at::Tensor ranks = group_numbers(elements.flatten()).members.view_as(elements);
  const at::Tensor serial = at::arange(1, n + 1, ranks.options()).mul_(elements.isnan().any(1));
  return group_rows(at::cat({ranks, serial.unsqueeze(1)}, 1));
}

Groups in_order_of_appearance(const Groups& groups) {
  const auto [first, order] = groups.first.sort();
  const at::Tensor renumbered = at::empty_like(order).scatter_(0, order, at::arange(order.size(0), order.options()));
  return {first, renumbered.index_select(0, groups.members), groups.counts.index_select(0, order)};
}

// `keys` has the shape of x and stands for it in comparisons.
UniqueResult unique_by(const at::Tensor& x, const at::Tensor& keys, std::optional<int64_t> axis, bool sorted) {
  TORCH_CHECK(!axis || x.dim() > 0, "Unique: a scalar has no axis ", *axis);
  Groups groups = axis && x.dim() > 1 ? group_subtensors(keys.movedim(*axis, 0)) : group_elements(keys.flatten());
  if (!sorted) groups = in_order_of_appearance(groups);
  const at::Tensor y = axis ? x.index_select(*axis, groups.first) : x.flatten().index_select(0, groups.first);
  return {y, groups.first, groups.members, groups.counts};
}

UniqueResult unique(const at::Tensor& x, std::optional<int64_t> axis, bool sorted, bool unsigned_order) {
  // The lowest int64 exchanged for zero: the order of the bits read as uint64.
  const at::Tensor keys = unsigned_order ? x.bitwise_xor(std::numeric_limits<int64_t>::min()) : x;
  return unique_by(x, keys, axis, sorted);
}

// Ids replaced by the rank of their text among the tensor's strings.
at::Tensor text_ranks(const StringPool& pool, const at::Tensor& ids) {
  const auto [distinct, inverse, counts] = at::_unique2(ids, /*sorted=*/false, /*return_inverse=*/true);
  const at::Tensor host_ids = distinct.cpu();
  const int64_t* id = host_ids.const_data_ptr<int64_t>();
  std::vector<int64_t> order(host_ids.numel());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](int64_t i) -> const std::string& { return pool.at(id[i]); });
  at::Tensor ranks = at::empty_like(host_ids);
  int64_t* rank_of = ranks.mutable_data_ptr<int64_t>();
  for (size_t rank = 0; rank < order.size(); ++rank) rank_of[order[rank]] = static_cast<int64_t>(rank);
  return ranks.to(ids.device()).take(inverse);
}

UniqueResult unique_strings(const c10::intrusive_ptr<StringPool>& pool, const at::Tensor& x,
                            std::optional<int64_t> axis, bool sorted) {
  return unique_by(x, text_ranks(*pool, x), axis, sorted);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  register_string_pool();

  // The distinct elements of x, or its distinct subtensors along `axis`, ascending or in the order of their first
  // appearance; the index of each one's first appearance; for each element or subtensor of x its index in y; how often
  // each occurs. unsigned_order: the int64 elements are the bits of uint64 ones.
  m.def(
      "unique(Tensor x, int? axis, bool sorted, bool unsigned_order=False)"
      " -> (Tensor y, Tensor indices, Tensor inverse_indices, Tensor counts)");

  // The same for strings, ascending by their bytes.
  m.def(
      "unique_strings(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor x, int? axis, bool sorted)"
      " -> (Tensor y, Tensor indices, Tensor inverse_indices, Tensor counts)");
}

TORCH_LIBRARY_IMPL(onnx_torch, CompositeExplicitAutograd, m) {
  m.impl("unique", &unique);
  m.impl("unique_strings", &unique_strings);
}

}  // namespace onnxtorch
