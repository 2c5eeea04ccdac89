#include "kernels/cuda/element_wise.h"
#include "kernels/cuda/launch.cuh"

#pragma nv_diag_suppress 549  // a step reads no local that no step before has set
#include "kernels/standard/element_wise_of.h"

namespace onnxtorch::cuda {

// Computes the elements. A thread takes several of them, for which it reads each step once. Neighbours among the
// threads have neighbours among the elements.
cudaError_t compute_element_wise(const ElementWise& of, const ElementWiseMemory& memory, cudaStream_t stream) {
  constexpr uint32_t kElements = 4;
  const uint32_t threads = of.count / kElements + (of.count % kElements != 0);
  return for_each(threads, stream, [=] __device__(int64_t i) {
    compute_elements<kElements>(of, memory, static_cast<uint32_t>(i), threads);
  });
}

}  // namespace onnxtorch::cuda
