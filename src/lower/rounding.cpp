#include "lower/rounding.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include "kernels/work_memory.h"
#include "lower/cpu_features.h"
#include "lower/plain.h"
#include "lower/simd/rounding.h"
#include "passes/registered.h"

namespace onnxtorch {
namespace {

at::Tensor rounded(const at::Tensor& x, c10::ScalarType type) {
  const bool fits = type == c10::kBFloat16 && is_plain(x) && x.is_non_overlapping_and_dense() && !x.requires_grad();
  if (!fits) return x.to(type).to(x.scalar_type());
  constexpr int64_t kGrain = 1 << 16;
  constexpr float kMostGrowth = 1.01F;
  const float bound = bound_of(x) * kMostGrowth;
  const at::Tensor y = work_tensor_over(x);
  const auto* const from = x.const_data_ptr<float>();
  auto* const to = y.mutable_data_ptr<float>();
  const auto round = for_this_cpu<RoundingKernels>().to_bfloat16;
  at::parallel_for(0, x.numel(), kGrain,
                   [&](int64_t begin, int64_t end) { round(from + begin, to + begin, end - begin); });
  note_bound(y, bound);
  return y;
}

}  // namespace

void register_rounding() {
  static const torch::Library library =
      registered([](torch::Library& m) { m.def("rounded(Tensor x, ScalarType type) -> Tensor", rounded); });
}

}  // namespace onnxtorch
