#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/registered.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/rows.h"

namespace onnxtorch {
namespace {

// Rows divided by the sum of their elements' absolute values, unless that is 0.
at::Tensor normalize_rows(const at::Tensor& x) {
  if (!has_short_rows(x)) {
    const at::Tensor size = at::sum(at::abs(x), {-1}, /*keepdim=*/true);
    return at::div(x, at::where(at::eq(size, 0), 1.0, size));
  }
  const at::Tensor result = at::empty(x.sizes(), x.options());
  auto* const to = result.mutable_data_ptr<float>();
  for_each_row(x, [&](int64_t number, std::span<const float> row) {
    const float size =
        std::accumulate(row.begin(), row.end(), 0.F, [](float sum, float value) { return sum + std::abs(value); });
    const float divisor = size == 0 ? 1 : size;
    std::ranges::transform(row, to + number * std::ssize(row), [&](float value) { return value / divisor; });
  });
  return result;
}

}  // namespace

void register_l1_norm() {
  static const torch::Library library =
      registered([](torch::Library& m) { m.def("normalize_rows(Tensor x) -> Tensor", normalize_rows); });
}

}  // namespace onnxtorch
