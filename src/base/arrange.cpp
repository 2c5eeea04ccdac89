#include "base/arrange.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "base/cpu_tensor.h"
#include "base/element_bits.h"
#include "base/parallel.h"
#include "base/work_memory.h"

namespace onnxtorch {
namespace {

struct Dim {
  int64_t size, from, to;  // strides
};
using Dims = std::vector<Dim>;

// A tile of so many rows and columns, or as many elements, stays in the level 1 cache on both sides.
constexpr int64_t kTile = 32;
constexpr size_t kMostDims = 64;  // each of two elements or more

// Gives the dimensions from the outermost to the innermost of what is written. Those that both sides go through as one
// are one.
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

// Visits the indices of the dimensions, in order: tells where each begins on both sides, and its index in the last one.
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
    visit(from, to, at[dims.size() - 1]);
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
  int64_t count = 1;
  for (const Dim& dim : dims) count *= dim.size;
  parallel_for(count, elements_of_each, [&](int64_t begin, int64_t end) { for_each(dims, begin, end, visit); });
}

template <typename T>
void copy_row(const Dim& row, const T* from, T* to) {
  if (row.from == 1 && row.to == 1 && row.size >= kTile) {
    std::memcpy(to, from, row.size * sizeof(T));
  } else {
    for (int64_t i = 0; i < row.size; ++i) to[i * row.to] = from[i * row.from];
  }
}

// Copies row by row. Threads share out tiles of short rows, and pieces of long ones.
template <typename T>
void copy_rows(Dims dims, const T* from, T* to) {
  constexpr int64_t kPiece = 1 << 13;
  const Dim row = dims.back();
  dims.pop_back();
  if (row.size >= kPiece) {
    dims.push_back({(row.size + kPiece - 1) / kPiece, kPiece * row.from, kPiece * row.to});
    for_each(dims, kPiece, [&](int64_t at_from, int64_t at_to, int64_t number) {
      const int64_t count = std::min(kPiece, row.size - number * kPiece);
      copy_row({count, row.from, row.to}, from + at_from, to + at_to);
    });
    return;
  }
  const Dim rows = dims.empty() ? Dim{1, 0, 0} : dims.back();
  if (!dims.empty()) dims.pop_back();
  const int64_t tile = std::clamp<int64_t>(kTile * kTile / row.size, 1, kTile);
  dims.push_back({(rows.size + tile - 1) / tile, tile * rows.from, tile * rows.to});
  for_each(dims, tile * row.size, [&](int64_t at_from, int64_t at_to, int64_t number) {
    const int64_t count = std::min(tile, rows.size - number * tile);
    for (int64_t i = 0; i < count; ++i) copy_row(row, from + at_from + i * rows.from, to + at_to + i * rows.to);
  });
}

// A matrix whose columns are contiguous where it is read, and whose rows are where it is written. Its strides lead from
// column to column there, and from row to row here.
template <typename T>
struct Matrix {
  const T* from;
  T* to;
  int64_t column, row;

  Matrix at(int64_t i, int64_t j) const { return {from + j * column + i, to + i * row + j, column, row}; }

  void transpose(int64_t rows, int64_t columns) const {
    if (columns < rows) {
      for (int64_t j = 0; j < columns; ++j) {
#pragma GCC unroll 8
        for (int64_t i = 0; i < rows; ++i) to[i * row + j] = from[j * column + i];
      }
    } else {
      for (int64_t i = 0; i < rows; ++i) {
#pragma GCC unroll 8
        for (int64_t j = 0; j < columns; ++j) to[i * row + j] = from[j * column + i];
      }
    }
  }
};

// A square of elements in registers, each of which holds a row.
template <typename T>
struct Block {
  static constexpr int64_t kSize = 16 / sizeof(T);
  typedef T Row __attribute__((vector_size(16)));  // NOLINT(modernize-use-using): GCC takes no alias of T
  Row rows[kSize];

  void transpose() {
    for (int64_t done = 1; done < kSize; done *= 2) interleave(std::make_index_sequence<kSize>());
  }

 private:
  // Interleaves each row of the first half with its counterpart in the second. Repeated log2(kSize) times, this
  // transposes the square.
  template <size_t... i>
  void interleave(std::index_sequence<i...>) {
    const Block before = *this;
    constexpr size_t kHalf = kSize / 2;
    for (size_t row = 0; row < kHalf; ++row) {
      const Row a = before.rows[row], b = before.rows[row + kHalf];
      rows[2 * row] = __builtin_shufflevector(a, b, (i / 2 + i % 2 * kSize)...);
      rows[2 * row + 1] = __builtin_shufflevector(a, b, (kHalf + i / 2 + i % 2 * kSize)...);
    }
  }
};

// Reads and writes whole rows of a block, even where there are fewer rows or columns.
template <typename T>
void transpose_block(const Matrix<T>& matrix, int64_t rows = Block<T>::kSize, int64_t columns = Block<T>::kSize) {
  Block<T> block{};
  for (int64_t j = 0; j < columns; ++j)
    std::memcpy(&block.rows[j], matrix.from + j * matrix.column, sizeof(block.rows[j]));
  block.transpose();
  for (int64_t i = 0; i < rows; ++i) std::memcpy(matrix.to + i * matrix.row, &block.rows[i], sizeof(block.rows[i]));
}

// Transposes the few contiguous elements of each of many pixels. A block reads more than one pixel's, and what it
// writes behind a pixel the next one overwrites, so the last pixels take no block. Gives false where the tile is none
// of these.
template <typename T>
bool transpose_pixels(const Matrix<T>& matrix, int64_t rows, int64_t columns) {
  constexpr int64_t kSize = Block<T>::kSize;
  const auto are_pixels = [](int64_t numbers, int64_t stride) {
    return numbers == stride && numbers < kSize && 4 * numbers >= kSize;  // with fewer, a block does more than it saves
  };
  if (are_pixels(columns, matrix.row)) {
    int64_t i = 0;
    for (; i + kSize + kSize / columns < rows; i += kSize) transpose_block(matrix.at(i, 0), kSize, columns);
    matrix.at(i, 0).transpose(rows - i, columns);
  } else if (are_pixels(rows, matrix.column)) {
    int64_t j = 0;
    for (; j + kSize + kSize / rows < columns; j += kSize) transpose_block(matrix.at(0, j), rows, kSize);
    matrix.at(0, j).transpose(rows, columns - j);
  } else {
    return false;
  }
  return true;
}

template <typename T>
void transpose_tile(const Matrix<T>& matrix, int64_t rows, int64_t columns) {
  if (transpose_pixels(matrix, rows, columns)) return;
  constexpr int64_t kSize = Block<T>::kSize;
  const int64_t whole_rows = rows - rows % kSize, whole_columns = columns - columns % kSize;
  for (int64_t i = 0; i < whole_rows; i += kSize) {
    for (int64_t j = 0; j < whole_columns; j += kSize) transpose_block(matrix.at(i, j));
  }
  matrix.at(0, whole_columns).transpose(whole_rows, columns - whole_columns);
  matrix.at(whole_rows, 0).transpose(rows - whole_rows, columns);
}

// Transposes elements that are contiguous on the one side and apart on the other.
template <typename T>
void transpose(Dims dims, size_t side_by_side, const T* from, T* to) {
  const Dim row = dims.back(), column = dims[side_by_side];
  dims.pop_back();
  dims.erase(dims.begin() + static_cast<int64_t>(side_by_side));
  if (column.size < kTile) {  // such as an image's channels
    const int64_t width = kTile * kTile / column.size;
    dims.push_back({(row.size + width - 1) / width, width * row.from, width});
    for_each(dims, width * column.size, [&](int64_t at_from, int64_t at_to, int64_t number) {
      const Matrix<T> matrix{from + at_from, to + at_to, row.from, column.to};
      transpose_tile(matrix, column.size, std::min(width, row.size - number * width));
    });
    return;
  }
  const int64_t tile = std::max(kTile, kTile * kTile / row.size);
  dims.push_back({(column.size + tile - 1) / tile, tile, tile * column.to});
  for_each(dims, tile * row.size, [&](int64_t at_from, int64_t at_to, int64_t number) {
    const Matrix<T> matrix{from + at_from, to + at_to, row.from, column.to};
    const int64_t rows = std::min(tile, column.size - number * tile);
    for (int64_t j = 0; j < row.size; j += kTile) transpose_tile(matrix.at(0, j), rows, std::min(kTile, row.size - j));
  });
}

template <typename T>
void copy(Dims dims, const void* from, void* to) {
  const auto* const source = static_cast<const T*>(from);
  auto* const target = static_cast<T*>(to);
  const auto side_by_side = std::ranges::find(dims, 1, &Dim::from);
  if (side_by_side == dims.end() || side_by_side == dims.end() - 1 || dims.back().to != 1) {
    copy_rows(std::move(dims), source, target);
  } else {
    const size_t column = side_by_side - dims.begin();
    transpose(std::move(dims), column, source, target);
  }
}

// Copies the elements. Gives false where they are of a size that is left to ATen.
bool copy(const at::Tensor& from, at::IntArrayRef to_strides, void* to) {
  Dims dims = dims_of(from, to_strides);
  const void* const source = from.const_data_ptr();
  return with_bits_of(from.element_size(), [&]<typename T>(T) {
    copy<T>(std::move(dims), source, to);
    return true;
  });
}

}  // namespace

bool has_strides(const at::Tensor& t, at::IntArrayRef strides) {
  for (int64_t i = 0; i < t.dim(); ++i) {
    if (t.size(i) != 1 && t.stride(i) != strides[i]) return false;
  }
  return true;
}

void copy_into(const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() == 0) return;
  if (!lies_in_memory(to) || !lies_in_memory(from) || !copy(from, to.strides(), to.mutable_data_ptr())) to.copy_(from);
}

void copy_into(const at::Tensor& to, int64_t dim, int64_t start, const at::Tensor& from) {
  if (from.numel() == 0) return;
  const int64_t offset = to.element_size() * start * to.stride(dim);
  const bool is_done = lies_in_memory(to) && lies_in_memory(from) &&
                       copy(from, to.strides(), static_cast<std::byte*>(to.mutable_data_ptr()) + offset);
  if (!is_done) to.narrow(dim, start, from.size(dim)).copy_(from);
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

at::Tensor copy_of(const at::Tensor& t) {
  constexpr size_t kSmall = 1 << 15;  // bytes; ATen shares the copy of more among threads
  if (!lies_in_memory(t) || !t.is_contiguous() || t.nbytes() > kSmall) return t.clone();
  const at::Tensor own = at::detail::empty_cpu(t.sizes(), t.scalar_type());
  if (t.nbytes() > 0) std::memcpy(own.mutable_data_ptr(), t.const_data_ptr(), t.nbytes());
  return own;
}

}  // namespace onnxtorch
