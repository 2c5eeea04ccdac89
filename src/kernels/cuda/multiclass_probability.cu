#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/multiclass_probability.h"
#include "kernels/standard/coupling.h"

namespace onnxtorch::cuda {

template <typename T>
cudaError_t couple(int64_t rows, int64_t classes, const T* pairs, T* memory, T* probabilities, cudaStream_t stream) {
  return for_each(rows, stream, [=] __device__(int64_t row) {
    Coupling<T>(classes, memory + row * Coupling<T>::work(classes))
        .solve(pairs + row * classes * classes, probabilities + row * classes);
  });
}

template cudaError_t couple(int64_t, int64_t, const float*, float*, float*, cudaStream_t);
template cudaError_t couple(int64_t, int64_t, const double*, double*, double*, cudaStream_t);

}  // namespace onnxtorch::cuda
