// Coupling of pairs of classes on contiguous device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace onnxtorch::cuda {

// Computes probabilities [rows, classes] from pairs [rows, classes, classes], with memory for Coupling's work on each
// row.
template <typename T>
cudaError_t couple(int64_t rows, int64_t classes, const T* pairs, T* memory, T* probabilities, cudaStream_t stream);

}  // namespace onnxtorch::cuda
