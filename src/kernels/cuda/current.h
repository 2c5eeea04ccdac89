// The device and the stream in which host code launches the CUDA kernels: those of a tensor, and of the caller.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace onnxtorch::cuda {

// Calls launch(stream), which returns a cudaError_t, on the device of the tensor.
template <typename Launch>
void on_device_of(const at::Tensor& tensor, const Launch& launch) {
  const c10::cuda::CUDAGuard guard(tensor.device());
  C10_CUDA_CHECK(launch(c10::cuda::getCurrentCUDAStream().stream()));
}

}  // namespace onnxtorch::cuda
