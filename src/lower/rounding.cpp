#include "lower/rounding.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <bit>

#include "kernels/work_memory.h"
#include "lower/for_each_cpu.h"
#include "lower/plain.h"
#include "passes/registered.h"

namespace onnxtorch {
namespace {

// To the nearest one, and of two that are as near to the even one. A NaN stays as it is.
ONNX_TORCH_FOR_EACH_CPU void round_to_bfloat16(const float* x, float* y, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(x[i]);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    y[i] = x[i] == x[i] ? std::bit_cast<float>(rounded) : x[i];
  }
}

at::Tensor rounded(const at::Tensor& x, c10::ScalarType type) {
  const bool fits = type == c10::kBFloat16 && is_plain(x) && x.is_non_overlapping_and_dense() && !x.requires_grad();
  if (!fits) return x.to(type).to(x.scalar_type());
  constexpr int64_t kGrain = 1 << 16;
  constexpr float kMostGrowth = 1.01F;
  const float bound = bound_of(x) * kMostGrowth;
  const at::Tensor y = work_tensor_over(x);
  const auto* const from = x.const_data_ptr<float>();
  auto* const to = y.mutable_data_ptr<float>();
  at::parallel_for(0, x.numel(), kGrain,
                   [&](int64_t begin, int64_t end) { round_to_bfloat16(from + begin, to + begin, end - begin); });
  note_bound(y, bound);
  return y;
}

}  // namespace

void register_rounding() {
  static const torch::Library library =
      registered([](torch::Library& m) { m.def("rounded(Tensor x, ScalarType type) -> Tensor", rounded); });
}

}  // namespace onnxtorch
