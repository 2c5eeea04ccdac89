#include "lower/cuda.h"

#include "lower/cuda_attention.h"
#include "lower/cuda_layout.h"

namespace onnxtorch {

std::span<const Pass> cuda_passes() {
  static constexpr Pass kPasses[] = {
      {"channels_last", "lay out weights of convolutions in float16, bfloat16 and TF32 with the channels last",
       lay_out_channels_last},
      {"attention", "compute a softmax between two products of matrices by ATen's attention", fuse_attention},
  };
  return kPasses;
}

}  // namespace onnxtorch
