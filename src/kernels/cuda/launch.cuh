// The launch of kernels: with a thread for each element, or a block for each group.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#undef NDEBUG  // what cannot be known before a launch is asserted, as in ATen's kernels
#include <cassert>

namespace onnxtorch::cuda {

constexpr int kThreads = 256;
constexpr int kThreadsOfWarp = 32;
constexpr int64_t kMaxBlocks = 1 << 20;  // the threads of so many blocks take several elements each

template <typename Each>
__global__ void call_each(int64_t count, Each each) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) each(i);
}

// Calls each(i) for i from 0 to count - 1, in no order.
template <typename Each>
cudaError_t for_each(int64_t count, cudaStream_t stream, const Each& each) {
  if (count == 0) return cudaSuccess;
  const int64_t blocks = std::min((count + kThreads - 1) / kThreads, kMaxBlocks);
  call_each<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(count, each);
  return cudaGetLastError();
}

// Runs kernel(arguments...) on a grid of blocks.
template <typename... Parameters, typename... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream,
                   const Arguments&... arguments) {
  kernel<<<blocks, threads, 0, stream>>>(arguments...);
  return cudaGetLastError();
}

// Gives the sum of x over the threads of a warp, in each of them.
__device__ inline float sum_of_warp(float x) {
  for (int distance = kThreadsOfWarp / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(~0U, x, distance);
  return x;
}

}  // namespace onnxtorch::cuda
