#include "lower/cpu.h"

#include "lower/chain/chains.h"
#include "lower/copies.h"
#include "lower/cpu_attention.h"
#include "lower/group_norm.h"
#include "lower/pooling.h"
#include "lower/resample.h"
#include "lower/rotary.h"
#include "lower/rows.h"
#include "lower/widening.h"

#ifdef ONNX_TORCH_ONEDNN
#include "lower/onednn/pack.h"
#include "lower/onednn/packed.h"
#include "lower/onednn/products.h"
#include "lower/onednn/quantized.h"
#include "lower/onednn/recurrent_layers.h"
#include "lower/onednn/recurrent_steps.h"
#endif

namespace onnxtorch {
namespace {

constexpr Pass kResampling{"resampling", "add up the weighted elements of a Resize in one step for each axis",
                           find_resampling};
constexpr Pass kHalves{
    "halves", "compute in float32, and round at the ends, what is of a type that the CPU has no instructions for",
    widen_halves};
constexpr Pass kAttention{"attention", "compute a softmax between two products of matrices as one attention",
                          find_attention};
constexpr Pass kGroupNorms{"group_norms", "normalize the channels of what lies channels-last as it lies",
                           replace_group_norms};
constexpr Pass kPools{"pools", "take the largest of windows, and their means, row by row", replace_pools};
constexpr Pass kRows{"rows", "softmax, norms, means, labels and the largest elements, computed row by row",
                     replace_rows};
constexpr Pass kRotary{"rotary", "turn the halves of rows, as rotary position embeddings do, in one pass over memory",
                       find_rotary_embeddings};
constexpr Pass kCopies{"copies", "join tensors, and bring their elements into order, by copies that take less time",
                       replace_copies};
constexpr Pass kChains{"chains", "compute element-wise operators on one another's results in one pass over memory",
                       find_chains};

}  // namespace

std::span<const Pass> middle_cpu_passes() {
  static constexpr Pass kPasses[] = {kHalves};
  return kPasses;
}

#ifdef ONNX_TORCH_ONEDNN

std::span<const Pass> first_cpu_passes() {
  static constexpr Pass kPasses[] = {
      {"recurrent_steps", "find recurrent layers whose steps are written out", find_recurrent_steps},
      kResampling,
  };
  return kPasses;
}

std::span<const Pass> early_cpu_passes() {
  static constexpr Pass kPasses[] = {
      {"quantized", "compute with the numbers of 8 bits that QuantizeLinear gives", find_quantized},
  };
  return kPasses;
}

std::span<const Pass> cpu_passes() {
  static constexpr Pass kPasses[] = {
      kAttention,
      {"pack", "lay out the weights of convolutions and products once, and compute what follows along with them", pack},
      {"recurrent", "lay out the weights of recurrent layers once", pack_recurrent_layers},
      {"matmul", "compute the other products of matrices by oneDNN", replace_products},
      kGroupNorms,
      kPools,
      kRows,
      kRotary,
      kCopies,
      kChains,
  };
  return kPasses;
}

std::vector<std::vector<SavedWeights>> saved_weights(const Program& program) {
  std::vector<std::vector<SavedWeights>> result;
  for (const auto& operation : packed_of(program)) result.push_back(operation->saved());
  return result;
}

void take_weights(const Program& program, std::vector<std::vector<SavedWeights>> saved) {
  const auto operations = packed_of(program);
  if (operations.size() != saved.size()) throw InvalidModelError("the file's packed operators are not the model's");
  for (size_t i = 0; i < saved.size(); ++i) operations[i]->take(std::move(saved[i]));
}

void lay_out_weights(const Program& program) { expect_known_sizes(program); }

std::string layouts_version() { return onednn_version(); }

#else

std::span<const Pass> first_cpu_passes() {
  static constexpr Pass kPasses[] = {kResampling};
  return kPasses;
}
std::span<const Pass> early_cpu_passes() { return {}; }
std::span<const Pass> cpu_passes() {
  static constexpr Pass kPasses[] = {kAttention, kGroupNorms, kPools, kRows, kRotary, kCopies, kChains};
  return kPasses;
}
std::vector<std::vector<SavedWeights>> saved_weights(const Program&) { return {}; }
void take_weights(const Program&, std::vector<std::vector<SavedWeights>>) {}
void lay_out_weights(const Program&) {}
std::string layouts_version() { return "none"; }

#endif

}  // namespace onnxtorch
