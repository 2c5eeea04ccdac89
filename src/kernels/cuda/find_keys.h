// The search for keys in sorted ones, on contiguous device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace onnxtorch::cuda {

// Computes find_key() of each element of x.
template <typename T>
cudaError_t find_keys(int64_t count, const T* x, int64_t keys, const T* ascending, const int64_t* position_of,
                      int64_t* positions, cudaStream_t stream);

}  // namespace onnxtorch::cuda
