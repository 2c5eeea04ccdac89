// Unique. Subtensors are sorted as rows on the CPU; on other devices every element is first replaced by its rank among
// the distinct elements, so that one search for equal ones serves all element types.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/string_pool.h"
#include "kernels/standard/keys.h"

namespace onnxtorch {
namespace {

using UniqueResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// The distinct entries of a tensor along its first dimension, in ascending order.
struct Groups {
  at::Tensor first;    // of each group: the index of its first member
  at::Tensor members;  // of each entry: its group
  at::Tensor counts;
};

// Groups real numbers. All NaN are one number, and the largest.
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

// Gives the elements of each subtensor as a row of real numbers.
at::Tensor rows_of(const at::Tensor& x) { return (x.is_complex() ? at::view_as_real(x) : x).unsqueeze(1).flatten(1); }

// Groups subtensors. As in numpy, one with a NaN in it equals no other.
Groups group_subtensors(const at::Tensor& x) {
  const int64_t n = x.size(0);
  const at::Tensor elements = rows_of(x);
  const at::Tensor ranks = group_numbers(elements.flatten()).members.view_as(elements);
  const at::Tensor serial = at::arange(1, n + 1, ranks.options()).mul_(elements.isnan().any(1));
  return group_rows(at::cat({ranks, serial.unsqueeze(1)}, 1));
}

template <typename T>
bool has_nan(std::span<const T> row) {
  if constexpr (std::is_floating_point_v<T>) return std::ranges::any_of(row, [](T x) { return std::isnan(x); });
  return false;
}

template <typename T>
Groups group_rows_on_cpu(const at::Tensor& rows) {
  const int64_t n = rows.size(0), size = rows.size(1);
  const T* const elements = rows.const_data_ptr<T>();
  const auto row = [&](int64_t i) { return std::span(elements + i * size, size); };
  const auto is_less = [&](int64_t a, int64_t b) {
    return std::ranges::lexicographical_compare(row(a), row(b), KeyOrder());
  };
  std::vector<int64_t> order(n), first, counts;
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, is_less);
  at::Tensor members = at::empty({n}, at::kLong);
  auto* const member = members.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < n; ++i) {
    if (i == 0 || is_less(order[i - 1], order[i]) || has_nan(row(order[i]))) {
      first.push_back(order[i]);
      counts.push_back(0);
    }
    ++counts.back();
    member[order[i]] = std::ssize(first) - 1;
  }
  return {at::tensor(first), members, at::tensor(counts)};
}

Groups group_subtensors_on_cpu(const at::Tensor& x) {
  const bool is_half = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  const at::Tensor rows = rows_of(is_half ? x.to(at::kFloat) : x).contiguous();
  return AT_DISPATCH_ALL_TYPES_AND(at::kBool, rows.scalar_type(), "unique",
                                   [&] { return group_rows_on_cpu<scalar_t>(rows); });
}

Groups in_order_of_appearance(const Groups& groups) {
  const auto [first, order] = groups.first.sort();
  const at::Tensor renumbered = at::empty_like(order).scatter_(0, order, at::arange(order.size(0), order.options()));
  return {first, renumbered.index_select(0, groups.members), groups.counts.index_select(0, order)};
}

using Group = Groups (*)(const at::Tensor& x);

// Finds what is distinct by `keys`, which has the shape of x and stands for it in comparisons.
template <Group group>
UniqueResult unique_by(const at::Tensor& x, const at::Tensor& keys, std::optional<int64_t> axis, bool sorted) {
  TORCH_CHECK(!axis || x.dim() > 0, "Unique: a scalar has no axis ", *axis);
  Groups groups = axis && x.dim() > 1 ? group(keys.movedim(*axis, 0)) : group_elements(keys.flatten());
  if (!sorted) groups = in_order_of_appearance(groups);
  const at::Tensor y = axis ? x.index_select(*axis, groups.first) : x.flatten().index_select(0, groups.first);
  return {y, groups.first, groups.members, groups.counts};
}

template <Group group>
UniqueResult unique(const at::Tensor& x, std::optional<int64_t> axis, bool sorted, bool unsigned_order) {
  // The lowest int64 is exchanged for zero, which gives the order of the bits read as uint64.
  const at::Tensor keys = unsigned_order ? x.bitwise_xor(std::numeric_limits<int64_t>::min()) : x;
  return unique_by<group>(x, keys, axis, sorted);
}

// Replaces ids by the rank of their text among the tensor's strings.
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

template <Group group>
UniqueResult unique_strings(const c10::intrusive_ptr<StringPool>& pool, const at::Tensor& x,
                            std::optional<int64_t> axis, bool sorted) {
  return unique_by<group>(x, text_ranks(*pool, x), axis, sorted);
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
  m.impl("unique", &unique<group_subtensors>);
  m.impl("unique_strings", &unique_strings<group_subtensors>);
}

TORCH_LIBRARY_IMPL(onnx_torch, CPU, m) {
  m.impl("unique", &unique<group_subtensors_on_cpu>);
  m.impl("unique_strings", &unique_strings<group_subtensors_on_cpu>);
}

}  // namespace onnxtorch
