// Products and convolutions with an activation, a scale or a transposition.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_linear_ops(Registry& /*r*/) {}

}  // namespace onnxtorch
