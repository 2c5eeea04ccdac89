#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/planned_call.h"
#include "base/registered.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/rows.h"

namespace onnxtorch {
namespace {

void compute(const float* x, float* y, int64_t rows, int64_t size) {
  for_each_row(x, rows, size, [&](int64_t number, std::span<const float> row) {
    const float norm =
        std::accumulate(row.begin(), row.end(), 0.F, [](float sum, float value) { return sum + std::abs(value); });
    const float divisor = norm == 0 ? 1 : norm;
    std::ranges::transform(row, y + number * size, [&](float value) { return value / divisor; });
  });
}

// Divides rows by the sum of their elements' absolute values, unless that is 0.
at::Tensor normalize_rows(const at::Tensor& x) {
  if (!has_short_rows(x)) {
    const at::Tensor size = at::sum(at::abs(x), {-1}, /*keepdim=*/true);
    return at::div(x, at::where(at::eq(size, 0), 1.0, size));
  }
  const at::Tensor result = at::empty(x.sizes(), x.options());
  compute(x.const_data_ptr<float>(), result.mutable_data_ptr<float>(), x.numel() / x.size(-1), x.size(-1));
  return result;
}

std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  if (!has_short_rows(x)) return {};
  return planned(
      [rows = x.numel() / x.size(-1), size = x.size(-1)](std::span<const TensorPlace> places) {
        compute(places[0].as<float>(), places[1].as<float>(), rows, size);
      },
      {{.result = 1, .argument = 0}});
}

}  // namespace

void register_l1_norm() {
  static const torch::Library library =
      registered([](torch::Library& m) { m.def("normalize_rows(Tensor x) -> Tensor", normalize_rows); });
  register_planner("onnx_torch::normalize_rows", plan);
}

}  // namespace onnxtorch
