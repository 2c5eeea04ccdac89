// Mixtures of experts.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_experts_ops(Registry& /*r*/) {}

}  // namespace onnxtorch
