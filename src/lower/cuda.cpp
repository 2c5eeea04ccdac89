#include "lower/cuda.h"

#include "lower/cuda_attention.h"

namespace onnxtorch {

std::span<const Pass> cuda_passes() {
  static constexpr Pass kPasses[] = {
      {"attention", "compute a softmax between two products of matrices by ATen's attention", fuse_attention},
  };
  return kPasses;
}

}  // namespace onnxtorch
