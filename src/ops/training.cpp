#include "ops/ops.h"
#include "registry/registry.h"

namespace onnxtorch {

void register_training_ops(Registry& r) { (void)r; }

}  // namespace onnxtorch
