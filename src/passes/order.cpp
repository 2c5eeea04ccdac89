#include "passes/order.h"

#include <algorithm>
#include <iterator>

#include "passes/cpu/blocks.h"
#include "passes/cpu/chains.h"
#include "passes/cpu/passes.h"
#include "passes/cuda/passes.h"
#include "passes/general/passes.h"
#include "passes/general/precision.h"

namespace onnxtorch {
namespace {

using enum Pass::Device;

bool has_lower_precision(const Program& program) { return program.target.precision != c10::kFloat; }

constexpr Pass kOrder[] = {
    {"fold", "decide what known sizes decide, and compute nothing twice", fold},
    {"gather", "pick rows and elements, and place them, in one step where indices may count from the end",
     take_gathers},
    {"kernels",
     "compute the steps of a Resize, the largest elements, running sums, attention with a cache, support vectors and "
     "rows of tables of few bits in one step each",
     take_kernels, Cpu},
    {"blocks", "take channels out of onnxruntime's blocks, and compute between them on what is not in blocks",
     find_blocks, Cpu},
#ifdef ONNX_TORCH_ONEDNN
    {"recurrent_steps", "find recurrent layers that ATen has none for", find_recurrent_steps, Cpu},
    {"quantized", "compute with the numbers of 8 bits that QuantizeLinear gives", find_quantized, Cpu},
#endif
    {"bits", "multiply by weights of 2, 4 and 8 bits as they are", pack_bits, Cpu},
    {"bits", "multiply by weights of 2, 4 and 8 bits as they are", multiply_bits, Cuda},
    {"expand", "write out the scripts that no pass has taken as a whole", expand, Any, has_kept_scripts},
    {"constants", "compute once what depends on weights alone", fold_constants},
    {"halves", "compute in float32, and round at the ends, what is of a type that the CPU has no instructions for",
     widen_halves, Cpu},
    {"normalizations", "find LayerNorm and GroupNorm in the ways that exporters write them", find_normalizations},
    {"activations", "find Silu, HardSwish and Gelu in the ways that exporters write them", find_activations},
    {"layout", "take out reshapes and permutations that undo one another", simplify_layout},
    {"scales", "put constant factors and addends of each channel into the weights before them", fold_scales},
    {"parts", "compute of a result no more than is read of it", compute_parts},
    {"precision", "compute convolutions and products in the type that the options name", lower_precision, Any,
     has_lower_precision},

    {"channels_last", "lay out weights of convolutions in float16, bfloat16 and TF32 with the channels last",
     lay_out_channels_last, Cuda},
    {"recurrent", "lay out the weights of recurrent layers once", lay_out_recurrent_layers, Cuda},
    {"attention", "compute a softmax between two products of matrices by ATen's attention", fuse_attention, Cuda},
    {"linear", "multiply by a matrix and add a bias in one step", find_linear, Cuda},

    {"attention", "compute a softmax between two products of matrices as one attention", find_attention, Cpu},
#ifdef ONNX_TORCH_ONEDNN
    {"pack", "lay out the weights of convolutions and products once, and compute what follows along with them", pack,
     Cpu},
    {"recurrent", "lay out the weights of recurrent layers once", pack_recurrent_layers, Cpu},
    {"matmul", "compute the other products of matrices by oneDNN", replace_products, Cpu},
#endif
    {"group_norms", "normalize the channels of what lies channels-last as it lies", replace_group_norms, Cpu},
    {"pools", "take the largest of windows, and their means, row by row", replace_pools, Cpu},
    {"rows", "softmax, norms, means, labels and the largest elements, computed row by row", replace_rows, Cpu},
    {"rotary", "turn the halves of rows, as rotary position embeddings do, in one pass over memory",
     find_rotary_embeddings, Cpu},
    {"copies", "join tensors, and bring their elements into order, by copies that take less time", replace_copies, Cpu},
    {"chains", "compute element-wise operators on one another's results in one pass over memory", find_chains, Cpu},
    {"chains", "compute element-wise operators that follow one another in one pass over memory", find_cuda_chains,
     Cuda},
};

}  // namespace

std::vector<Pass> passes_for(c10::Device device) {
  const Pass::Device other = device.is_cpu() ? Cuda : Cpu;
  std::vector<Pass> passes;
  std::ranges::copy_if(kOrder, std::back_inserter(passes), [&](const Pass& pass) { return pass.device != other; });
  return passes;
}

std::vector<Pass> optional_passes_for(c10::Device device) {
  std::vector<Pass> passes = passes_for(device);
  std::erase_if(passes, [](const Pass& pass) { return pass.is_needed; });
  return passes;
}

}  // namespace onnxtorch
