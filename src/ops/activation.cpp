#include "ops/ops.h"
#include "registry/registry.h"

namespace onnxtorch {

void register_activation_ops(Registry& r) { (void)r; }

}  // namespace onnxtorch
