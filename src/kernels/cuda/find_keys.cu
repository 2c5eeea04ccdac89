#include "kernels/cuda/find_keys.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/standard/keys.h"

namespace onnxtorch::cuda {

template <typename T>
cudaError_t find_keys(int64_t count, const T* x, int64_t keys, const T* ascending, const int64_t* position_of,
                      int64_t* positions, cudaStream_t stream) {
  return for_each(count, stream,
                  [=] __device__(int64_t i) { positions[i] = find_key(x[i], ascending, position_of, keys); });
}

#define INSTANTIATE(T) \
  template cudaError_t find_keys(int64_t, const T*, int64_t, const T*, const int64_t*, int64_t*, cudaStream_t)
INSTANTIATE(uint8_t);
INSTANTIATE(int8_t);
INSTANTIATE(int16_t);
INSTANTIATE(int32_t);
INSTANTIATE(int64_t);
INSTANTIATE(float);
INSTANTIATE(double);
#undef INSTANTIATE

}  // namespace onnxtorch::cuda
