// Element-wise operators, one after another on each element, on device memory.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/standard/element_wise.h"

namespace onnxtorch::cuda {

cudaError_t compute_element_wise(const ElementWise& of, const ElementWiseMemory& memory, cudaStream_t stream);

}  // namespace onnxtorch::cuda
