// Loops over a decoder: BeamSearch, GreedySearch, Sampling.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_search_ops(Registry& /*r*/) {}

}  // namespace onnxtorch
