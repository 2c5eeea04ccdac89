#include "kernels/arrange.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/SmallVector.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/work_memory.h"

namespace onnxtorch {
namespace {

struct Dim {
  int64_t size, from, to;  // strides
};
using Dims = c10::SmallVector<Dim, 8>;

// A tile of so many rows and columns stays in the level 1 cache on both sides.
constexpr int64_t kTile = 32;
constexpr size_t kMostDims = 64;  // each of two elements or more

// From the outermost to the innermost of what is written; those that both sides go through as one are one.
Dims dims_of(const at::Tensor& from, at::IntArrayRef to) {
  Dims sorted;
  for (int64_t i = 0; i < from.dim(); ++i) {
    if (from.size(i) != 1) sorted.push_back({from.size(i), from.stride(i), to[i]});
  }
  std::ranges::sort(sorted, std::greater(), &Dim::to);
  Dims dims = sorted.empty() ? Dims{{1, 1, 1}} : Dims();
  for (const Dim& dim : sorted) {
    const bool goes_on =
        !dims.empty() && dims.back().from == dim.from * dim.size && dims.back().to == dim.to * dim.size;
    if (goes_on) {
      dims.back() = {dims.back().size * dim.size, dim.from, dim.to};
    } else {
      dims.push_back(dim);
    }
  }
  return dims;
}

// Visits what the dimensions count: where it begins on both sides, and its number in the last of them.
template <typename Visit>
void for_each(at::ArrayRef<Dim> dims, int64_t begin, int64_t end, const Visit& visit) {
  std::array<int64_t, kMostDims> at{};
  int64_t from = 0, to = 0, rest = begin;
  for (size_t d = dims.size(); d-- > 0;) {
    at[d] = rest % dims[d].size;
    rest /= dims[d].size;
    from += at[d] * dims[d].from;
    to += at[d] * dims[d].to;
  }
  for (int64_t i = begin; i < end; ++i) {
    visit(from, to, dims.empty() ? 0 : at[dims.size() - 1]);
    for (size_t d = dims.size(); d-- > 0;) {
      from += dims[d].from;
      to += dims[d].to;
      if (++at[d] < dims[d].size) break;
      from -= at[d] * dims[d].from;
      to -= at[d] * dims[d].to;
      at[d] = 0;
    }
  }
}

template <typename Visit>
void for_each(at::ArrayRef<Dim> dims, int64_t elements_of_each, const Visit& visit) {
  constexpr int64_t kGrain = 1 << 15;
  int64_t count = 1;
  for (const Dim& dim : dims) count *= dim.size;
  at::parallel_for(0, count, std::max<int64_t>(kGrain / elements_of_each, 1),
                   [&](int64_t begin, int64_t end) { for_each(dims, begin, end, visit); });
}

template <typename T>
void copy_rows(Dims dims, const T* from, T* to) {
  const Dim row = dims.back();
  dims.pop_back();
  for_each(dims, row.size, [&](int64_t at_from, int64_t at_to, int64_t) {
    if (row.from == 1 && row.to == 1) {
      std::memcpy(to + at_to, from + at_from, row.size * sizeof(T));
    } else {
      for (int64_t i = 0; i < row.size; ++i) to[at_to + i * row.to] = from[at_from + i * row.from];
    }
  });
}

// Elements that are side by side on the one side are apart on the other.
template <typename T>
void transpose(Dims dims, size_t side_by_side, const T* from, T* to) {
  const Dim row = dims.back(), column = dims[side_by_side];
  dims.pop_back();
  dims.erase(dims.begin() + static_cast<int64_t>(side_by_side));
  dims.push_back({(column.size + kTile - 1) / kTile, kTile, kTile * column.to});
  for_each(dims, kTile * row.size, [&](int64_t at_from, int64_t at_to, int64_t tile) {
    const int64_t columns = std::min(kTile, column.size - tile * kTile);
    for (int64_t first = 0; first < row.size; first += kTile) {
      const int64_t end = std::min(first + kTile, row.size);
      for (int64_t c = 0; c < columns; ++c) {
        for (int64_t i = first; i < end; ++i) to[at_to + c * column.to + i * row.to] = from[at_from + c + i * row.from];
      }
    }
  });
}

template <typename T>
void copy(const Dims& dims, const void* from, void* to) {
  const auto* const source = static_cast<const T*>(from);
  auto* const target = static_cast<T*>(to);
  const auto* const side_by_side = std::ranges::find(dims, 1, &Dim::from);
  if (side_by_side == dims.end() || side_by_side == &dims.back()) {
    copy_rows(dims, source, target);
  } else {
    transpose(dims, side_by_side - dims.begin(), source, target);
  }
}

bool has_strides(const at::Tensor& t, at::IntArrayRef strides) {
  for (int64_t i = 0; i < t.dim(); ++i) {
    if (t.size(i) != 1 && t.stride(i) != strides[i]) return false;
  }
  return true;
}

}  // namespace

void copy_into(const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() == 0) return;
  const auto is_plain = [](const at::Tensor& t) {
    return t.is_cpu() && t.layout() == c10::kStrided && !t.is_conj() && !t.is_neg();
  };
  if (!is_plain(to) || !is_plain(from)) {
    to.copy_(from);
    return;
  }
  const Dims dims = dims_of(from, to.strides());
  const void* const source = from.const_data_ptr();
  void* const target = to.mutable_data_ptr();
  switch (from.element_size()) {
    case 1:
      return copy<uint8_t>(dims, source, target);
    case 2:
      return copy<uint16_t>(dims, source, target);
    case 4:
      return copy<uint32_t>(dims, source, target);
    case 8:
      return copy<uint64_t>(dims, source, target);
    default:
      to.copy_(from);
  }
}

at::Tensor arranged(const at::Tensor& t, at::IntArrayRef strides) {
  if (has_strides(t, strides)) return t;
  const at::Tensor result = t.is_cpu() ? work_tensor(t.sizes(), strides, t.scalar_type())
                                       : at::empty_strided(t.sizes(), strides, t.options());
  copy_into(result, t);
  return result;
}

at::Tensor contiguous(const at::Tensor& t) {
  return t.is_contiguous() ? t : arranged(t, c10::contiguous_strides(t.sizes()));
}

}  // namespace onnxtorch
