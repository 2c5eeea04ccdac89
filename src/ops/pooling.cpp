#include "ops/ops.h"
#include "registry/registry.h"

namespace onnxtorch {

void register_pooling_ops(Registry& r) { (void)r; }

}  // namespace onnxtorch
