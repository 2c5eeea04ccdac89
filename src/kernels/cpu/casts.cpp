#include "kernels/simd/casts.h"

#include <ATen/ATen.h>

#include "base/parallel.h"
#include "base/planned_call.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

template <typename From, typename To>
std::unique_ptr<PlannedCall> planned_cast(int64_t count, void (*cast)(const From*, To*, int64_t)) {
  return planned([count, cast](std::span<const TensorPlace> places) {
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      cast(places.front().as<From>() + begin, places.back().as<To>() + begin, end - begin);
    });
  });
}

// Plans the casts for which ATen has no SIMD code. Between the places of x and the result may be that of a tensor whose
// type is taken.
std::unique_ptr<PlannedCall> plan_cast(const PlannedOperands& of) {
  const at::Tensor from = of.tensor(0);
  const at::Tensor& to = of.results[0];
  if (!from.defined() || !from.is_cpu() || !to.is_cpu() || !from.is_non_overlapping_and_dense() ||
      from.strides() != to.strides()) {
    return {};
  }
  const auto& kernels = for_this_cpu<CastKernels>();
  const auto is = [a = from.scalar_type(), b = to.scalar_type()](c10::ScalarType of_x, c10::ScalarType of_y) {
    return a == of_x && b == of_y;
  };
  if (is(c10::kFloat, c10::kByte) || is(c10::kFloat, c10::kChar))
    return planned_cast(from.numel(), kernels.float_to_byte);
  if (is(c10::kFloat, c10::kLong)) return planned_cast(from.numel(), kernels.float_to_long);
  if (is(c10::kLong, c10::kFloat)) return planned_cast(from.numel(), kernels.long_to_float);
  if (is(c10::kBool, c10::kFloat)) return planned_cast(from.numel(), kernels.bool_to_float);
  if (is(c10::kFloat, c10::kBool)) return planned_cast(from.numel(), kernels.float_to_bool);
  if (is(c10::kInt, c10::kLong)) return planned_cast(from.numel(), kernels.int_to_long);
  if (is(c10::kLong, c10::kInt)) return planned_cast(from.numel(), kernels.long_to_int);
  return {};
}

}  // namespace

void register_casts() { register_planner("aten::to", plan_cast); }

}  // namespace onnxtorch
