#include <ATen/ATen.h>
#include <ATen/TensorUtils.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "base/parallel.h"
#include "base/planned_call.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

// Rows of a contiguous tensor, each given by an index for each of the tensor's first dimensions.
struct IndexedRows {
  struct Dimension {
    int64_t size, stride;  // the latter in rows
    int64_t step;          // from one of its indices to the next
  };
  std::vector<Dimension> dimensions;
  int64_t count = 0;
  size_t bytes = 0;  // of a row

  // Gives the index of the i-th row among all rows. The indices of each dimension lie at a place; negative ones count
  // from the end.
  int64_t number(std::span<const TensorPlace> indices, int64_t i) const {
    int64_t number = 0;
    for (size_t d = 0; d < dimensions.size(); ++d) {
      const auto [size, stride, step] = dimensions[d];
      const int64_t given = indices[d].as<int64_t>()[i * step];
      TORCH_CHECK_INDEX(given >= -size && given < size, "index ", given, " is out of bounds for dimension ", d,
                        " with size ", size);
      number += (given < 0 ? given + size : given) * stride;
    }
    return number;
  }
};

// Gives the distance between consecutive indices; none where they are not evenly spaced.
std::optional<int64_t> step_of(const at::Tensor& indices) {
  const auto strides = at::detail::computeStride(indices.sizes(), indices.strides(), at::DimVector{indices.numel()});
  return strides ? std::optional((*strides)[0]) : std::nullopt;
}

// Gives the rows that the indices name; none where these are no plain integers of one shape, or rows are too short to
// be copied one by one.
std::optional<IndexedRows> indexed_rows(const at::Tensor& data, const c10::IValue& list) {
  constexpr size_t kLeastBytes = 32;
  const auto indices = list.toListRef();
  if (indices.empty() || static_cast<int64_t>(indices.size()) > data.dim() || !data.is_cpu() || !data.is_contiguous() ||
      data.is_conj() || data.is_neg()) {
    return {};
  }
  IndexedRows rows;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d].isTensor()) return {};
    const at::Tensor& index = indices[d].toTensor();
    if (!index.defined() || !index.is_cpu() || index.scalar_type() != c10::kLong || index.numel() == 0) return {};
    const auto step = step_of(index);
    if (!step || index.sizes() != indices[0].toTensor().sizes()) return {};
    const auto last = data.sizes().slice(d + 1, indices.size() - d - 1);
    rows.dimensions.push_back({data.size(static_cast<int64_t>(d)), c10::multiply_integers(last), *step});
  }
  rows.count = indices[0].toTensor().numel();
  rows.bytes = data.element_size() * c10::multiply_integers(data.sizes().slice(indices.size()));
  return rows.bytes >= kLeastBytes ? std::optional(rows) : std::nullopt;
}

std::unique_ptr<PlannedCall> plan_index(const PlannedOperands& of) {
  const auto rows = indexed_rows(of.tensor(0), of.arguments[1]);
  if (!rows || !of.results[0].is_contiguous()) return {};
  return planned([rows = *rows](std::span<const TensorPlace> places) {
    const auto indices = places.subspan(1, rows.dimensions.size());
    const auto bytes = static_cast<int64_t>(rows.bytes);
    parallel_for(rows.count, bytes / 4, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        std::memcpy(places.back().data + i * bytes, places[0].data + rows.number(indices, i) * bytes, rows.bytes);
    });
  });
}

// Plans a call that writes rows one after another, so that of several for one place the last one stays.
std::unique_ptr<PlannedCall> plan_index_put(const PlannedOperands& of) {
  const at::Tensor data = of.tensor(0), values = of.tensor(2), &result = of.results[0];
  const auto rows = indexed_rows(data, of.arguments[1]);
  if (!rows || of.arguments[3].toBool() || !result.is_contiguous() || !values.is_contiguous() ||
      values.scalar_type() != data.scalar_type() || values.is_alias_of(data) || values.is_conj() || values.is_neg() ||
      values.nbytes() != static_cast<size_t>(rows->count) * rows->bytes) {
    return {};
  }
  const size_t last = rows->dimensions.size() + 2;
  return planned(
      [rows = *rows, whole = data.nbytes()](std::span<const TensorPlace> places) {
        const auto indices = places.subspan(1, rows.dimensions.size());
        const char* const from = places[indices.size() + 1].data;
        char* const to = places.back().data;
        const auto bytes = static_cast<int64_t>(rows.bytes);
        if (to != places[0].data) copy_bytes(to, places[0].data, whole);
        for (int64_t i = 0; i < rows.count; ++i)
          std::memcpy(to + rows.number(indices, i) * bytes, from + i * bytes, rows.bytes);
      },
      {{.result = last, .argument = 0}});
}

}  // namespace

void register_indexed_rows() {
  register_planner("aten::index", plan_index);
  register_planner("aten::index_put", plan_index_put);
}

}  // namespace onnxtorch
