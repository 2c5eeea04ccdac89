// Indices that count from the end where they are negative, and elements that are picked or placed by them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <vector>

namespace onnxtorch {

// Makes indices count from the start, as ATen's operators want them.
inline at::Tensor from_start(const at::Tensor& indices, int64_t size) {
  return at::where(at::lt(indices, 0), at::add(indices, size), indices);
}

[[noreturn]] inline void refuse_index(int64_t given, int64_t axis, int64_t size) {
  TORCH_CHECK_INDEX(false, "index ", given, " is out of bounds for dimension ", axis, " with size ", size);
}

// Makes an index count from the start. Throws where it lies outside of the axis.
inline int64_t checked_index(int64_t given, int64_t axis, int64_t size) {
  const int64_t chosen = given < 0 ? given + size : given;
  if (static_cast<uint64_t>(chosen) >= static_cast<uint64_t>(size)) [[unlikely]]
    refuse_index(given, axis, size);
  return chosen;
}

// The sizes of a gather or a scatter of one element for each index. The tensors are contiguous and have equally many
// dimensions.
struct IndexedElements {
  int64_t axis;
  std::vector<int64_t> data_sizes, data_strides, sizes;  // `sizes` are those of the indices

  IndexedElements(const at::Tensor& data, int64_t over, const at::Tensor& indices)
      : axis(over), data_sizes(data.sizes().vec()), data_strides(data.strides().vec()), sizes(indices.sizes().vec()) {}

  bool is_innermost() const { return axis + 1 == std::ssize(sizes); }
  int64_t columns() const { return sizes.back(); }

  int64_t rows() const {
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < sizes.size(); ++d) rows *= sizes[d];
    return rows;
  }

  // Gives the element of the data that a row of indices begins at, on the first place along the axis.
  int64_t start_of(int64_t row) const {
    int64_t start = 0;
    for (int64_t d = std::ssize(sizes) - 2; d >= 0; row /= sizes[d--]) {
      if (d != axis) start += row % sizes[d] * data_strides[d];
    }
    return start;
  }
};

inline bool is_dense(const at::Tensor& t) {
  return t.is_cpu() && t.is_contiguous() && t.dim() > 0 && t.numel() > 0 && !t.is_conj() && !t.is_neg();
}

// Tells whether the elements of dense tensors can be told by such indices.
inline bool is_indexed(const at::Tensor& data, int64_t axis, const at::Tensor& indices) {
  const bool is_integer = indices.scalar_type() == c10::kLong || indices.scalar_type() == c10::kInt;
  bool fits = is_integer && is_dense(data) && is_dense(indices) && data.dim() == indices.dim();
  for (int64_t d = 0; fits && d < data.dim(); ++d) fits = d == axis || indices.size(d) <= data.size(d);
  return fits;
}

}  // namespace onnxtorch
