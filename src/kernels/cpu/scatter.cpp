#include <ATen/ATen.h>
#include <torch/library.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "base/arrange.h"
#include "base/element_bits.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "kernels/cpu/indices.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

// Places the elements of some rows and columns. Where indices are alike, the last one's element stays.
template <typename T, typename Index>
struct Placing {
  const IndexedElements& of;
  const Index* indices;
  const T* updates;
  T* result;

  void operator()(int64_t first_row, int64_t end_row, int64_t first_column, int64_t end_column) const {
    const int64_t axis = of.axis, columns = of.columns(), along = of.is_innermost() ? 0 : 1;
    const int64_t size = of.data_sizes[axis], step = of.data_strides[axis];
    for (int64_t row = first_row; row < end_row; ++row) {
      T* const to = result + of.start_of(row);
      const Index* const index = indices + row * columns;
      const T* const from = updates + row * columns;
      for (int64_t i = first_column; i < end_column; ++i)
        to[along * i + checked_index(index[i], axis, size) * step] = from[i];
    }
  }
};

template <typename T, typename Index>
void place_elements(const IndexedElements& of, const char* indices, const char* updates, char* result) {
  const Placing<T, Index> place{of, reinterpret_cast<const Index*>(indices), reinterpret_cast<const T*>(updates),
                                reinterpret_cast<T*>(result)};
  const int64_t rows = of.rows(), columns = of.columns();
  constexpr int64_t kCost = 2;  // of an element that is placed
  // No two threads write to one line along the axis.
  if (of.is_innermost()) {
    parallel_for(rows, kCost * columns, [&](int64_t begin, int64_t end) { place(begin, end, 0, columns); });
  } else {
    parallel_for(columns, kCost * rows, [&](int64_t begin, int64_t end) { place(0, rows, begin, end); });
  }
}

using PlaceElements = void (*)(const IndexedElements& of, const char* indices, const char* updates, char* result);

template <typename Index>
PlaceElements place_elements_of(size_t bytes) {
  return with_bits_of(bytes, []<typename T>(T) -> PlaceElements { return place_elements<T, Index>; });
}

// Gives the function that places the elements; null where ATen is to place them, or to refuse the operands.
PlaceElements place_elements_for(const at::Tensor& data, int64_t axis, const at::Tensor& indices,
                                 const at::Tensor& updates) {
  const bool fits = is_indexed(data, axis, indices) && is_dense(updates) && indices.sizes() == updates.sizes() &&
                    data.scalar_type() == updates.scalar_type();
  if (!fits) return nullptr;
  const bool is_long = indices.scalar_type() == c10::kLong;
  return (is_long ? place_elements_of<int64_t> : place_elements_of<int32_t>)(data.element_size());
}

// Places elements by indices that may be negative, which ATen's scatter does not take.
at::Tensor scatter_elements(const at::Tensor& data, int64_t axis, const at::Tensor& indices,
                            const at::Tensor& updates) {
  axis = at::maybe_wrap_dim(axis, data.dim());
  const PlaceElements place = place_elements_for(data, axis, indices, updates);
  if (!place) return at::scatter(data, axis, from_start(indices, data.size(axis)), updates);
  at::Tensor result = copy_of(data);
  place(IndexedElements(data, axis, indices), static_cast<const char*>(indices.const_data_ptr()),
        static_cast<const char*>(updates.const_data_ptr()), static_cast<char*>(result.mutable_data_ptr()));
  return result;
}

std::unique_ptr<PlannedCall> plan_scatter_elements(const PlannedOperands& of) {
  const at::Tensor data = of.tensor(0), indices = of.tensor(2), updates = of.tensor(3);
  const int64_t axis = at::maybe_wrap_dim(of.arguments[1].toInt(), data.dim());
  const PlaceElements place = place_elements_for(data, axis, indices, updates);
  if (!place || !of.results[0].is_contiguous()) return {};
  return planned(
      [place, elements = IndexedElements(data, axis, indices),
       bytes = data.nbytes()](std::span<const TensorPlace> places) {
        char* const result = places[3].data;
        if (result != places[0].data) copy_bytes(result, places[0].data, bytes);
        place(elements, places[1].data, places[2].data, result);
      },
      {{.result = 3, .argument = 0}});
}

}  // namespace

void register_scatter() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("scatter_elements(Tensor data, int axis, Tensor indices, Tensor updates) -> Tensor", scatter_elements);
  });
  register_planner("onnx_torch::scatter_elements", plan_scatter_elements);
}

}  // namespace onnxtorch
