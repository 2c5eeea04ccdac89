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
#include <type_traits>

#include "base/arrange.h"
#include "base/parallel.h"
#include "base/planned_call.h"
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

// The type in which ATen adds; of integers the unsigned one, as they wrap around.
template <typename T>
using SumOf = std::conditional_t<std::is_integral_v<T>, uint64_t, at::acc_type<T, /*is_cuda=*/false>>;

// Accumulates the rows of each block.
template <typename T, typename Combine>
void accumulate(const T* x, T* y, const Blocks& blocks, T start, const Combine& combine) {
  using Sum = SumOf<T>;
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

// Gives the blocks along a dimension; none where ATen adds.
std::optional<Blocks> blocks_of(const at::Tensor& x, int64_t dim, bool reverse) {
  const bool fits = x.is_cpu() && x.numel() > 0 && x.dim() > 0 && !x.is_complex() && x.scalar_type() != c10::kBool;
  if (!fits || at::maybe_wrap_dim(dim, x.dim()) == x.dim() - 1) return {};
  dim = at::maybe_wrap_dim(dim, x.dim());
  return Blocks{c10::multiply_integers(x.sizes().slice(0, dim)), x.size(dim),
                c10::multiply_integers(x.sizes().slice(dim + 1)), reverse};
}

// One of the operators: ATen's function for it, the value that it starts with, and how two elements are combined.
template <Aten aten, int start, typename Combine>
struct Running {
  template <typename T>
  static void compute(const T* x, T* y, const Blocks& blocks) {
    accumulate(x, y, blocks, static_cast<T>(start), Combine());
  }

  static at::Tensor run(const at::Tensor& x, int64_t dim, bool reverse) {
    const auto blocks = blocks_of(x, dim, reverse);
    if (!blocks) {
      const auto type = x.scalar_type();
      return reverse ? aten(x.flip(dim), dim, type).flip(dim) : aten(x, dim, type);
    }
    const at::Tensor from = contiguous(x);
    at::Tensor y = work_tensor(x.sizes(), x.scalar_type());
    AT_DISPATCH_ALL_TYPES_AND2(c10::kHalf, c10::kBFloat16, x.scalar_type(), "running", [&] {
      compute(from.const_data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>(), *blocks);
    });
    return y;
  }

  static std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
    const at::Tensor x = of.tensor(0);
    const auto blocks = blocks_of(x, of.arguments[1].toInt(), of.arguments[2].toBool());
    if (!blocks || !x.is_contiguous() || !of.results[0].is_contiguous()) return {};
    return AT_DISPATCH_ALL_TYPES_AND2(c10::kHalf, c10::kBFloat16, x.scalar_type(), "running", [&] {
      return planned([blocks = *blocks](std::span<const TensorPlace> places) {
        compute(places[0].as<scalar_t>(), places[1].as<scalar_t>(), blocks);
      });
    });
  }
};

using CumSum = Running<at::cumsum, 0, std::plus<>>;
using CumProd = Running<at::cumprod, 1, std::multiplies<>>;

}  // namespace

void register_running() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("cumsum(Tensor x, int dim, bool reverse) -> Tensor", CumSum::run);
    m.def("cumprod(Tensor x, int dim, bool reverse) -> Tensor", CumProd::run);
  });
  register_planner("onnx_torch::cumsum", CumSum::plan);
  register_planner("onnx_torch::cumprod", CumProd::plan);
}

}  // namespace onnxtorch
