// Casts to floating types of 8, 6 and 4 bits on contiguous device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/standard/small_float.h"

namespace onnxtorch::cuda {

// Cast to codes, or to the values of codes as float16.
template <typename Source>
cudaError_t cast_to_codes(int64_t count, const SmallFloatCast& cast, const Source* source, uint8_t* codes,
                          cudaStream_t stream);
template <typename Source>
cudaError_t cast_to_halves(int64_t count, const SmallFloatCast& cast, const Source* source, uint16_t* halves,
                           cudaStream_t stream);

}  // namespace onnxtorch::cuda
