#include <ATen/ATen.h>
#include <torch/library.h>

#include "base/parallel.h"
#include "kernels/standard/element_wise_of.h"
#include "kernels/standard/element_wise_pass.h"

namespace onnxtorch {
namespace {

void compute_on_cpu(const ElementWise& of, const ElementWiseMemory& memory, const at::Tensor& /*device*/) {
  constexpr int64_t kCost = 8;  // of a step
  parallel_for(of.count, kCost * of.step_count, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) compute_elements<1>(of, memory, static_cast<uint32_t>(i), 1);
  });
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  m.class_<ElementWisePass>("ElementWisePass");
  m.def("element_wise(Tensor[] sources, __torch__.torch.classes.onnx_torch.ElementWisePass computed_by) -> Tensor[]");
}

TORCH_LIBRARY_IMPL(onnx_torch, CPU, m) { m.impl("element_wise", &element_wise<compute_on_cpu>); }

}  // namespace onnxtorch
