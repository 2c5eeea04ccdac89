#include "kernels/cuda/element_wise.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "kernels/cuda/current.h"
#include "kernels/standard/element_wise_pass.h"

namespace onnxtorch::cuda {
namespace {

void compute_on_device(const ElementWise& of, const ElementWiseMemory& memory, const at::Tensor& device) {
  on_device_of(device, [&](cudaStream_t stream) { return compute_element_wise(of, memory, stream); });
}

}  // namespace

TORCH_LIBRARY_IMPL(onnx_torch, CUDA, m) { m.impl("element_wise", &element_wise<compute_on_device>); }

}  // namespace onnxtorch::cuda
