#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <cstring>

#include "base/parallel.h"
#include "base/registered.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

template <typename Index>
void copy_rows(const at::Tensor& data, int64_t axis, const at::Tensor& indices, const at::Tensor& result) {
  const int64_t size = data.size(axis), picked = indices.size(0), step = indices.stride(0);
  const int64_t row = c10::multiply_integers(data.sizes().slice(axis + 1)) * static_cast<int64_t>(data.itemsize());
  const int64_t outer = c10::multiply_integers(data.sizes().slice(0, axis));
  const auto* const index = indices.const_data_ptr<Index>();
  const auto* const from = static_cast<const char*>(data.const_data_ptr());
  auto* const to = static_cast<char*>(result.mutable_data_ptr());
  parallel_for(outer * picked, row / static_cast<int64_t>(sizeof(float)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t given = index[i % picked * step];
      TORCH_CHECK_INDEX(given >= -size && given < size, "index out of range in self");
      const int64_t chosen = given < 0 ? given + size : given;
      std::memcpy(to + i * row, from + (i / picked * size + chosen) * row, static_cast<size_t>(row));
    }
  });
}

at::Tensor from_start(const at::Tensor& indices, int64_t size) {
  return at::where(at::lt(indices, 0), at::add(indices, size), indices);
}

// ATen's index_select takes no negative indices.
at::Tensor gather(const at::Tensor& data, int64_t axis, const at::Tensor& indices) {
  const bool is_long = indices.scalar_type() == c10::kLong, is_int = indices.scalar_type() == c10::kInt;
  const bool is_index = (is_long || is_int) && indices.is_cpu() && indices.dim() == 1;
  if (!is_index || data.dim() == 0 || !data.is_cpu() || !data.is_contiguous() || data.is_conj() || data.is_neg()) {
    return at::index_select(data, axis, from_start(indices, data.size(axis)));
  }
  axis = at::maybe_wrap_dim(axis, data.dim());
  at::DimVector sizes(data.sizes());
  sizes[axis] = indices.size(0);
  const at::Tensor result = at::empty(sizes, data.options());
  if (result.numel() > 0) (is_long ? copy_rows<int64_t> : copy_rows<int32_t>)(data, axis, indices, result);
  return result;
}

// The tensors are contiguous, and of as many dimensions.
template <typename T, typename Index>
void copy_elements(const at::Tensor& data, int64_t axis, const at::Tensor& indices, const at::Tensor& result) {
  const int64_t last = data.dim() - 1, size = data.size(axis), row = indices.size(last), step = data.stride(axis);
  const int64_t next = axis == last ? 0 : 1;  // from one element of a row of indices to the next
  const auto* const index = indices.const_data_ptr<Index>();
  const auto* const from = static_cast<const T*>(data.const_data_ptr());
  auto* const to = static_cast<T*>(result.mutable_data_ptr());
  constexpr int64_t kCost = 2;  // of an element that is sought
  parallel_for(indices.numel() / row, kCost * row, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t start = 0, rest = i;
      for (int64_t d = last - 1; d >= 0; rest /= indices.size(d--)) {
        if (d != axis) start += rest % indices.size(d) * data.stride(d);
      }
      for (int64_t j = 0; j < row; ++j) {
        const int64_t given = index[i * row + j], chosen = given < 0 ? given + size : given;
        TORCH_CHECK_INDEX(chosen >= 0 && chosen < size, "index ", given, " is out of bounds for dimension ", axis,
                          " with size ", size);
        to[i * row + j] = from[start + j * next + chosen * step];
      }
    }
  });
}

using CopyElements = void (*)(const at::Tensor& data, int64_t axis, const at::Tensor& indices,
                              const at::Tensor& result);

// For elements of so many bytes; null for others.
template <typename Index>
CopyElements copy_elements_of(size_t bytes) {
  switch (bytes) {
    case 1:
      return copy_elements<uint8_t, Index>;
    case 2:
      return copy_elements<uint16_t, Index>;
    case 4:
      return copy_elements<uint32_t, Index>;
    case 8:
      return copy_elements<uint64_t, Index>;
    default:
      return nullptr;
  }
}

// ATen's gather takes no negative indices either.
at::Tensor gather_elements(const at::Tensor& data, int64_t axis, const at::Tensor& indices) {
  const auto is_plain = [](const at::Tensor& t) {
    return t.is_cpu() && t.is_contiguous() && t.dim() > 0 && t.numel() > 0 && !t.is_conj() && !t.is_neg();
  };
  const bool is_long = indices.scalar_type() == c10::kLong, is_int = indices.scalar_type() == c10::kInt;
  const CopyElements copy = (is_long ? copy_elements_of<int64_t> : copy_elements_of<int32_t>)(data.element_size());
  bool fits = copy && (is_long || is_int) && is_plain(data) && is_plain(indices) && data.dim() == indices.dim();
  axis = at::maybe_wrap_dim(axis, data.dim());
  for (int64_t d = 0; fits && d < data.dim(); ++d) fits = d == axis || indices.size(d) <= data.size(d);
  if (!fits) return at::gather(data, axis, from_start(indices, data.size(axis)));
  const at::Tensor result = at::empty(indices.sizes(), data.options());
  copy(data, axis, indices, result);
  return result;
}

}  // namespace

void register_gather() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("gather(Tensor data, int axis, Tensor indices) -> Tensor", gather);
    m.def("gather_elements(Tensor data, int axis, Tensor indices) -> Tensor", gather_elements);
  });
}

}  // namespace onnxtorch
