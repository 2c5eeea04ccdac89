// Where the host code of the CUDA kernels launches them: on the device of a tensor, in the caller's stream.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

namespace onnxtorch::cuda {

// launch(stream) → cudaError_t
template <typename Launch>
void on_device_of(const at::Tensor& tensor, const Launch& launch) {
  const c10::cuda::CUDAGuard guard(tensor.device());
  C10_CUDA_CHECK(launch(c10::cuda::getCurrentCUDAStream().stream()));
}

}  // namespace onnxtorch::cuda
