#include "lower/cuda.h"

#include "lower/chain/chains.h"
#include "lower/cuda_attention.h"
#include "lower/cuda_layout.h"

namespace onnxtorch {

std::span<const Pass> cuda_passes() {
  static constexpr Pass kPasses[] = {
      {"channels_last", "lay out weights of convolutions in float16, bfloat16 and TF32 with the channels last",
       lay_out_channels_last},
      {"attention", "compute a softmax between two products of matrices by ATen's attention", fuse_attention},
      {"chains", "compute element-wise operators that follow one another in one pass over memory", find_cuda_chains},
  };
  return kPasses;
}

}  // namespace onnxtorch
