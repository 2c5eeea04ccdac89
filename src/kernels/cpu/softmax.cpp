#include "kernels/simd/softmax.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "base/arrange.h"
#include "base/registered.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/rows.h"

namespace onnxtorch {
namespace {

at::Tensor softmax(const at::Tensor& x) {
  if (!has_rows(x)) return at::softmax(x, -1);
  const at::Tensor y = rows_over(x), rows = contiguous(x);
  const int64_t size = x.size(-1);
  const auto* const from = rows.const_data_ptr<float>();
  auto* const to = y.mutable_data_ptr<float>();
  share_rows(x.numel() / size, size, [&](int64_t first, int64_t count) {
    for_this_cpu<SoftmaxKernels>().softmax_rows(from + first * size, to + first * size, count, size);
  });
  return y;
}

}  // namespace

void register_softmax() {
  static const torch::Library library =
      registered([](torch::Library& m) { m.def("softmax(Tensor x) -> Tensor", softmax); });
}

}  // namespace onnxtorch
