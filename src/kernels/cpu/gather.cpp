#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <cstring>
#include <vector>

#include "base/element_bits.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "kernels/cpu/indices.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

// Rows of `row` bytes, of which there are `size` in each of `outer` blocks; `picked` of each are copied. Their indices
// lie `step` apart, and are not below `lowest`; negative ones count from the end.
struct PickedRows {
  int64_t outer, size, row, picked, step, lowest;
};

template <typename Index>
void copy_rows(const PickedRows& rows, const char* from, const Index* index, char* to) {
  const auto [outer, size, row, picked, step, lowest] = rows;
  parallel_for(outer * picked, row / static_cast<int64_t>(sizeof(float)),
               [&, size = size, row = row, picked = picked, step = step, lowest = lowest](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t given = index[i % picked * step];
                   TORCH_CHECK_INDEX(given >= lowest && given < size, "index out of range in self");
                   const int64_t chosen = given < 0 ? given + size : given;
                   std::memcpy(to + i * row, from + (i / picked * size + chosen) * row, static_cast<size_t>(row));
                 }
               });
}

PickedRows picked_rows(const at::Tensor& data, int64_t axis, const at::Tensor& indices) {
  return {.outer = c10::multiply_integers(data.sizes().slice(0, axis)),
          .size = data.size(axis),
          .row = c10::multiply_integers(data.sizes().slice(axis + 1)) * data.element_size(),
          .picked = indices.size(0),
          .step = indices.stride(0),
          .lowest = -data.size(axis)};
}

bool is_picked_by_rows(const at::Tensor& data, const at::Tensor& indices) {
  const bool is_index = indices.scalar_type() == c10::kLong || indices.scalar_type() == c10::kInt;
  return is_index && indices.is_cpu() && indices.dim() == 1 && data.dim() > 0 && data.is_cpu() &&
         data.is_contiguous() && !data.is_conj() && !data.is_neg();
}

// Picks rows by indices that may be negative, which ATen's index_select does not take.
at::Tensor gather(const at::Tensor& data, int64_t axis, const at::Tensor& indices) {
  if (!is_picked_by_rows(data, indices)) {
    return at::index_select(data, axis, from_start(indices, data.size(axis)));
  }
  axis = at::maybe_wrap_dim(axis, data.dim());
  at::DimVector sizes(data.sizes());
  sizes[axis] = indices.size(0);
  const at::Tensor result = at::empty(sizes, data.options());
  if (result.numel() == 0) return result;
  const PickedRows rows = picked_rows(data, axis, indices);
  const auto* const from = static_cast<const char*>(data.const_data_ptr());
  auto* const to = static_cast<char*>(result.mutable_data_ptr());
  if (indices.scalar_type() == c10::kLong) {
    copy_rows(rows, from, indices.const_data_ptr<int64_t>(), to);
  } else {
    copy_rows(rows, from, indices.const_data_ptr<int32_t>(), to);
  }
  return result;
}

std::unique_ptr<PlannedCall> planned_gather(const PlannedOperands& of, bool takes_negative) {
  const at::Tensor data = of.tensor(0), indices = of.tensor(2), &result = of.results[0];
  if (!is_picked_by_rows(data, indices) || result.numel() == 0 || !result.is_contiguous()) return {};
  PickedRows rows = picked_rows(data, at::maybe_wrap_dim(of.arguments[1].toInt(), data.dim()), indices);
  if (!takes_negative) rows.lowest = 0;
  return planned([rows, is_long = indices.scalar_type() == c10::kLong](std::span<const TensorPlace> places) {
    if (is_long) {
      copy_rows(rows, places[0].data, places[1].as<int64_t>(), places[2].data);
    } else {
      copy_rows(rows, places[0].data, places[1].as<int32_t>(), places[2].data);
    }
  });
}

std::unique_ptr<PlannedCall> plan_gather(const PlannedOperands& of) { return planned_gather(of, true); }
std::unique_ptr<PlannedCall> plan_index_select(const PlannedOperands& of) { return planned_gather(of, false); }

// Copies one element for each index, out of lines of elements that are `step` apart. From one index to the next the
// line is another one, except on the innermost axis.
template <bool kInnermost, typename T, typename Index>
void copy_row(const T* from, int64_t axis, int64_t size, int64_t step, const Index* index, int64_t count, T* to) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t chosen = checked_index(index[i], axis, size);
    to[i] = kInnermost ? from[chosen] : from[i + chosen * step];
  }
}

template <typename T, typename Index>
void copy_elements(const IndexedElements& of, const char* data, const char* indices, char* result) {
  const int64_t axis = of.axis, size = of.data_sizes[axis], row = of.columns(), step = of.data_strides[axis];
  const auto* const index = reinterpret_cast<const Index*>(indices);
  const auto* const from = reinterpret_cast<const T*>(data);
  auto* const to = reinterpret_cast<T*>(result);
  const auto copy = of.is_innermost() ? copy_row<true, T, Index> : copy_row<false, T, Index>;
  constexpr int64_t kCost = 2;  // of an element that is sought
  parallel_for(of.rows(), kCost * row, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      copy(from + of.start_of(i), axis, size, step, index + i * row, row, to + i * row);
  });
}

using CopyElements = void (*)(const IndexedElements& of, const char* data, const char* indices, char* result);

// Returns the function for elements of so many bytes; null where there is none.
template <typename Index>
CopyElements copy_elements_of(size_t bytes) {
  return with_bits_of(bytes, []<typename T>(T) -> CopyElements { return copy_elements<T, Index>; });
}

// Gives the function that picks the elements; null where ATen is to pick them.
CopyElements copy_elements_for(const at::Tensor& data, int64_t axis, const at::Tensor& indices) {
  if (!is_indexed(data, axis, indices)) return nullptr;
  const bool is_long = indices.scalar_type() == c10::kLong;
  return (is_long ? copy_elements_of<int64_t> : copy_elements_of<int32_t>)(data.element_size());
}

// Picks elements by indices that may be negative, which ATen's gather does not take either.
at::Tensor gather_elements(const at::Tensor& data, int64_t axis, const at::Tensor& indices) {
  axis = at::maybe_wrap_dim(axis, data.dim());
  const CopyElements copy = copy_elements_for(data, axis, indices);
  if (!copy) return at::gather(data, axis, from_start(indices, data.size(axis)));
  const at::Tensor result = at::empty(indices.sizes(), data.options());
  copy(IndexedElements(data, axis, indices), static_cast<const char*>(data.const_data_ptr()),
       static_cast<const char*>(indices.const_data_ptr()), static_cast<char*>(result.mutable_data_ptr()));
  return result;
}

std::unique_ptr<PlannedCall> plan_gather_elements(const PlannedOperands& of) {
  const at::Tensor data = of.tensor(0), indices = of.tensor(2);
  const int64_t axis = at::maybe_wrap_dim(of.arguments[1].toInt(), data.dim());
  const CopyElements copy = copy_elements_for(data, axis, indices);
  if (!copy) return {};
  return planned([copy, elements = IndexedElements(data, axis, indices)](std::span<const TensorPlace> places) {
    copy(elements, places[0].data, places[1].data, places[2].data);
  });
}

}  // namespace

void register_gather() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("gather(Tensor data, int axis, Tensor indices) -> Tensor", gather);
    m.def("gather_elements(Tensor data, int axis, Tensor indices) -> Tensor", gather_elements);
  });
  register_planner("onnx_torch::gather", plan_gather);
  register_planner("aten::index_select", plan_index_select);
  register_planner("onnx_torch::gather_elements", plan_gather_elements);
}

}  // namespace onnxtorch
