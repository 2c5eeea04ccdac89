#include "kernels/simd/rounding.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <limits>

#include "base/cpu_tensor.h"
#include "base/parallel.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

bool fits(const at::Tensor& x, c10::ScalarType type) {
  return (type == c10::kBFloat16 || type == c10::kHalf) && is_plain(x) && x.is_non_overlapping_and_dense() &&
         !x.requires_grad();
}

// Rounds the elements. `bound` is a bound of their absolute values; returns one of the results'.
float compute(const float* x, float* y, int64_t count, bool to_bfloat16, float bound) {
  constexpr float kMostGrowth = 1.01F;
  const auto& kernels = for_this_cpu<RoundingKernels>();
  const auto round = to_bfloat16 ? kernels.to_bfloat16 : kernels.to_float16;
  parallel_for(count, 1, [&](int64_t begin, int64_t end) { round(x + begin, y + begin, end - begin); });
  return to_bfloat16 ? bound * kMostGrowth : std::numeric_limits<float>::infinity();
}

at::Tensor rounded(const at::Tensor& x, c10::ScalarType type) {
  if (!fits(x, type)) return x.to(type).to(x.scalar_type());
  const float bound = bound_of(x);
  const at::Tensor y = work_tensor_over(x);
  note_bound(y,
             compute(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), x.numel(), type == c10::kBFloat16, bound));
  return y;
}

std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  const c10::ScalarType type = of.arguments[1].toScalarType();
  if (!fits(x, type) || of.results[0].strides() != x.strides()) return {};
  return planned(
      [count = x.numel(), to_bfloat16 = type == c10::kBFloat16](std::span<const TensorPlace> places) {
        *places[1].bound = compute(places[0].as<float>(), places[1].as<float>(), count, to_bfloat16, *places[0].bound);
      },
      {{.result = 1, .argument = 0}});
}

}  // namespace

void register_rounding() {
  static const torch::Library library =
      registered([](torch::Library& m) { m.def("rounded(Tensor x, ScalarType type) -> Tensor", rounded); });
  register_planner("onnx_torch::rounded", plan);
}

}  // namespace onnxtorch
