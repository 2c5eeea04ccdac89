// Stands in for the device of a tensor: the CPU. What is registered for CUDA becomes an operator of onnx_torch_on_host.
#pragma once

#include <ATen/core/Tensor.h>
#include <cuda_runtime_api.h>
#include <torch/library.h>

#undef TORCH_LIBRARY_IMPL
#define TORCH_LIBRARY_IMPL(ns, key, m) _TORCH_LIBRARY_IMPL(ns##_on_host, CPU, m, C10_UID)

namespace onnxtorch::cuda {

template <typename Launch>
void on_device_of(const at::Tensor& /*tensor*/, const Launch& launch) {
  TORCH_CHECK(launch(cudaStream_t{}) == cudaSuccess, "a kernel was not launched");
}

}  // namespace onnxtorch::cuda
