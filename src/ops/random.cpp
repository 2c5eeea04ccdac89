#include "ops/ops.h"
#include "registry/registry.h"

namespace onnxtorch {

void register_random_ops(Registry& r) { (void)r; }

}  // namespace onnxtorch
