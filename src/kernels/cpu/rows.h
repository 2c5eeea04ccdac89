// Tensors of floats as rows along their last dimension, for operators that compute row by row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "base/cpu_tensor.h"
#include "base/parallel.h"
#include "base/work_memory.h"

namespace onnxtorch {

inline bool has_rows(const at::Tensor& x) { return is_plain(x) && x.dim() > 0; }

// Shares the rows of a tensor out among the threads: each calls visit(first, count).
template <typename Visit>
void share_rows(int64_t rows, int64_t size, const Visit& visit) {
  constexpr int64_t kCost = 8;  // of an element
  parallel_for(rows, kCost * size, [&](int64_t begin, int64_t end) { visit(begin, end - begin); });
}

// Calls visit(index, elements) for each row.
template <typename Visit>
void for_each_row(const float* x, int64_t rows, int64_t size, const Visit& visit) {
  share_rows(rows, size, [&](int64_t first, int64_t count) {
    for (int64_t row = first; row < first + count; ++row) visit(row, std::span(x + row * size, size));
  });
}

// Allocates the result of an operator that computes row by row.
inline at::Tensor rows_over(const at::Tensor& x) {
  return x.is_contiguous() ? work_tensor_over(x) : work_tensor(x.sizes(), c10::kFloat);
}

constexpr int64_t kLongest = 16;  // the longest row that gains nothing from SIMD vectors

inline bool has_short_rows(const at::Tensor& x) { return has_rows(x) && x.size(-1) <= kLongest && x.is_contiguous(); }

}  // namespace onnxtorch
