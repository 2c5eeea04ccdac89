#include "ops/ops.h"
#include "registry/registry.h"

namespace onnxtorch {

void register_reduction_ops(Registry& r) { (void)r; }

}  // namespace onnxtorch
