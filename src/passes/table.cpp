#include "passes/activations.h"
#include "passes/fold.h"
#include "passes/fold_constants.h"
#include "passes/fold_scales.h"
#include "passes/gather.h"
#include "passes/layout.h"
#include "passes/normalizations.h"
#include "passes/pass.h"

namespace onnxtorch {

std::span<const Pass> passes() {
  static constexpr Pass kPasses[] = {
      {"fold", "decide what known sizes decide, and compute nothing twice", fold},
      {"constants", "compute once what depends on weights alone", fold_constants},
      {"normalizations", "find LayerNorm and GroupNorm in the ways that exporters write them", find_normalizations},
      {"activations", "find Silu, HardSwish and Gelu in the ways that exporters write them", find_activations},
      {"gather", "pick rows and elements in one step where indices may count from the end", find_gather},
      {"layout", "take out reshapes and permutations that undo one another", simplify_layout},
      {"scales", "put constant factors and addends of each channel into the weights before them", fold_scales},
  };
  return kPasses;
}

}  // namespace onnxtorch
