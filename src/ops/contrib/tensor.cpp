// What moves, pads, samples and measures tensors.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_tensor_ops(Registry& /*r*/) {}

}  // namespace onnxtorch
