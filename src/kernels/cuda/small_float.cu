#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/small_float.h"

namespace onnxtorch::cuda {

template <typename Source>
cudaError_t cast_to_codes(int64_t count, const SmallFloatCast& cast, const Source* source, uint8_t* codes,
                          cudaStream_t stream) {
  return for_each(count, stream, [=] __device__(int64_t i) { codes[i] = cast.code(unpack(source[i])); });
}

template <typename Source>
cudaError_t cast_to_halves(int64_t count, const SmallFloatCast& cast, const Source* source, uint16_t* halves,
                           cudaStream_t stream) {
  return for_each(count, stream, [=] __device__(int64_t i) { halves[i] = cast.half(unpack(source[i])); });
}

template cudaError_t cast_to_codes(int64_t, const SmallFloatCast&, const float*, uint8_t*, cudaStream_t);
template cudaError_t cast_to_codes(int64_t, const SmallFloatCast&, const double*, uint8_t*, cudaStream_t);
template cudaError_t cast_to_codes(int64_t, const SmallFloatCast&, const int64_t*, uint8_t*, cudaStream_t);
template cudaError_t cast_to_codes(int64_t, const SmallFloatCast&, const uint64_t*, uint8_t*, cudaStream_t);
template cudaError_t cast_to_halves(int64_t, const SmallFloatCast&, const float*, uint16_t*, cudaStream_t);
template cudaError_t cast_to_halves(int64_t, const SmallFloatCast&, const double*, uint16_t*, cudaStream_t);
template cudaError_t cast_to_halves(int64_t, const SmallFloatCast&, const int64_t*, uint16_t*, cudaStream_t);
template cudaError_t cast_to_halves(int64_t, const SmallFloatCast&, const uint64_t*, uint16_t*, cudaStream_t);

}  // namespace onnxtorch::cuda
