#include "kernels/simd/rounding.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <limits>

#include "base/cpu_tensor.h"
#include "base/parallel.h"
#include "base/registered.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"

namespace onnxtorch {
namespace {

at::Tensor rounded(const at::Tensor& x, c10::ScalarType type) {
  const bool is_bfloat = type == c10::kBFloat16;
  const bool fits = (is_bfloat || type == c10::kHalf) && is_plain(x) && x.is_non_overlapping_and_dense();
  if (!fits || x.requires_grad()) return x.to(type).to(x.scalar_type());
  constexpr float kMostGrowth = 1.01F;
  const float bound = is_bfloat ? bound_of(x) * kMostGrowth : std::numeric_limits<float>::infinity();
  const at::Tensor y = work_tensor_over(x);
  const auto* const from = x.const_data_ptr<float>();
  auto* const to = y.mutable_data_ptr<float>();
  const auto& kernels = for_this_cpu<RoundingKernels>();
  const auto round = is_bfloat ? kernels.to_bfloat16 : kernels.to_float16;
  parallel_for(x.numel(), 1, [&](int64_t begin, int64_t end) { round(from + begin, to + begin, end - begin); });
  note_bound(y, bound);
  return y;
}

}  // namespace

void register_rounding() {
  static const torch::Library library =
      registered([](torch::Library& m) { m.def("rounded(Tensor x, ScalarType type) -> Tensor", rounded); });
}

}  // namespace onnxtorch
