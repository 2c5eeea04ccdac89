#include "kernels/simd/softmax.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "base/arrange.h"
#include "base/planned_call.h"
#include "base/registered.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/operators.h"
#include "kernels/cpu/rows.h"

namespace onnxtorch {
namespace {

using SoftmaxKernel = void (*SoftmaxKernels::*)(const float* x, float* y, int64_t rows, int64_t size);

void compute(SoftmaxKernel kernel, const float* x, float* y, int64_t rows, int64_t size) {
  share_rows(rows, size, [&](int64_t first, int64_t count) {
    (for_this_cpu<SoftmaxKernels>().*kernel)(x + first * size, y + first * size, count, size);
  });
}

at::Tensor computed(SoftmaxKernel kernel, const at::Tensor& x) {
  const at::Tensor y = rows_over(x), rows = contiguous(x);
  compute(kernel, rows.const_data_ptr<float>(), y.mutable_data_ptr<float>(), x.numel() / x.size(-1), x.size(-1));
  return y;
}

at::Tensor softmax(const at::Tensor& x) {
  return has_rows(x) ? computed(&SoftmaxKernels::softmax_rows, x) : at::softmax(x, -1);
}

at::Tensor log_softmax(const at::Tensor& x) {
  return has_rows(x) ? computed(&SoftmaxKernels::log_softmax_rows, x) : at::log_softmax(x, -1);
}

template <SoftmaxKernel kernel>
std::unique_ptr<PlannedCall> plan(const PlannedOperands& of) {
  const at::Tensor x = of.tensor(0);
  if (!has_rows(x) || !x.is_contiguous()) return {};
  return planned(
      [rows = x.numel() / x.size(-1), size = x.size(-1)](std::span<const TensorPlace> places) {
        compute(kernel, places[0].as<float>(), places[1].as<float>(), rows, size);
      },
      {{.result = 1, .argument = 0}});
}

}  // namespace

void register_softmax() {
  static const torch::Library library = registered([](torch::Library& m) {
    m.def("softmax(Tensor x) -> Tensor", softmax);
    m.def("log_softmax(Tensor x) -> Tensor", log_softmax);
  });
  register_planner("onnx_torch::softmax", plan<&SoftmaxKernels::softmax_rows>);
  register_planner("onnx_torch::log_softmax", plan<&SoftmaxKernels::log_softmax_rows>);
}

}  // namespace onnxtorch
