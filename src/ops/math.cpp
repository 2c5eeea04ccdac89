#include "ops/ops.h"
#include "registry/registry.h"

namespace onnxtorch {

void register_math_ops(Registry& r) { (void)r; }

}  // namespace onnxtorch
