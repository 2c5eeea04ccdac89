#include <ATen/ATen.h>
#include <ATen/AccumulateType.h>
#include <ATen/Dispatch.h>
#include <ATen/WrapDimUtils.h>
#include <c10/util/accumulate.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "base/arrange.h"
#include "base/parallel.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

// Blocks of rows, to be added up from the first or from the last. ATen goes through them column by column.
struct Blocks {
  int64_t count, rows, columns;
  bool reverse;
};

// In the type in which ATen adds.
template <typename T, typename Combine>
void accumulate(const T* x, T* y, const Blocks& blocks, T start, const Combine& combine) {
  using Sum = at::acc_type<T, /*is_cuda=*/false>;
  constexpr int64_t kWidth = 256;  // elements
  constexpr int64_t kCost = 8;     // of an element
  const int64_t strips = (blocks.columns + kWidth - 1) / kWidth, width = std::min(kWidth, blocks.columns);
  const int64_t step = blocks.reverse ? -blocks.columns : blocks.columns;
  const int64_t first_row = blocks.reverse ? (blocks.rows - 1) * blocks.columns : 0;
  parallel_for(blocks.count * strips, kCost * blocks.rows * width, [&](int64_t begin, int64_t end) {
    std::array<Sum, kWidth> sums;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i % strips * kWidth, columns = std::min(kWidth, blocks.columns - column);
      int64_t at = i / strips * blocks.rows * blocks.columns + first_row + column;
      sums.fill(start);
      for (int64_t row = 0; row < blocks.rows; ++row, at += step) {
        for (int64_t c = 0; c < columns; ++c) {
          sums[c] = combine(sums[c], static_cast<Sum>(x[at + c]));
          y[at + c] = static_cast<T>(sums[c]);
        }
      }
    }
  });
}

using Aten = at::Tensor (*)(const at::Tensor& x, int64_t dim, std::optional<at::ScalarType> dtype);

template <Aten aten, int start, typename Combine>
at::Tensor running(const at::Tensor& x, int64_t dim, std::optional<at::ScalarType> dtype, bool reverse) {
  const bool fits =
      x.is_cpu() && x.numel() > 0 && x.dim() > 0 && dtype == x.scalar_type() && !x.is_complex() && dtype != c10::kBool;
  if (!fits || at::maybe_wrap_dim(dim, x.dim()) == x.dim() - 1)
    return reverse ? aten(x.flip(dim), dim, dtype).flip(dim) : aten(x, dim, dtype);
  dim = at::maybe_wrap_dim(dim, x.dim());
  const at::Tensor from = contiguous(x);
  at::Tensor y = work_tensor(x.sizes(), x.scalar_type());
  const Blocks blocks{c10::multiply_integers(x.sizes().slice(0, dim)), x.size(dim),
                      c10::multiply_integers(x.sizes().slice(dim + 1)), reverse};
  AT_DISPATCH_ALL_TYPES_AND2(c10::kHalf, c10::kBFloat16, x.scalar_type(), "running", [&] {
    accumulate(from.const_data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>(), blocks, static_cast<scalar_t>(start),
               Combine());
  });
  return y;
}

}  // namespace

void register_running() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("cumsum(Tensor x, int dim, ScalarType? dtype, bool reverse) -> Tensor", running<at::cumsum, 0, std::plus<>>);
    m.def("cumprod(Tensor x, int dim, ScalarType? dtype, bool reverse) -> Tensor",
          running<at::cumprod, 1, std::multiplies<>>);
  });
}

}  // namespace onnxtorch
