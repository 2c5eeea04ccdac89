// The lower and the upper triangle of matrices, row by row, where ATen takes element by element.
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "base/planned_call.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

struct Matrices {
  int64_t count, rows, columns, diagonal;
  int64_t item;  // bytes of an element
};

// Keeps the columns of a row before the first one beyond the diagonal, or the others, and clears the rest; `y` may be
// `x`.
void take_row(const Matrices& of, int64_t row, bool lower, const char* x, char* y) {
  const int64_t beyond = std::clamp<int64_t>(of.diagonal + row % of.rows + (lower ? 1 : 0), 0, of.columns);
  const int64_t begin = row * of.columns * of.item, split = beyond * of.item, size = of.columns * of.item;
  const auto keep = [&](int64_t from, int64_t to) { std::memmove(y + begin + from, x + begin + from, to - from); };
  const auto clear = [&](int64_t from, int64_t to) { std::memset(y + begin + from, 0, to - from); };
  if (lower) {
    keep(0, split);
    clear(split, size);
  } else {
    clear(0, split);
    keep(split, size);
  }
}

template <bool lower>
std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  if (!x.defined() || !x.is_cpu() || x.dim() < 2 || x.numel() == 0 || !x.is_contiguous() ||
      !of.results[0].is_contiguous()) {
    return {};
  }
  const int64_t rows = x.size(-2), columns = x.size(-1), diagonal = of.arguments[1].toInt();
  const Matrices matrices{x.numel() / (rows * columns), rows, columns, std::clamp(diagonal, -rows - 1, columns + 1),
                          x.element_size()};
  return planned(
      [matrices](std::span<const TensorPlace> places) {
        parallel_for(matrices.count * matrices.rows, matrices.columns, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) take_row(matrices, row, lower, places[0].data, places[1].data);
        });
      },
      {{.result = 1, .argument = 0}});
}

}  // namespace

void register_triangles() {
  register_planner("aten::tril", plan</*lower=*/true>);
  register_planner("aten::triu", plan</*lower=*/false>);
}

}  // namespace onnxtorch
