#include "ops/ops.h"
#include "registry/registry.h"

namespace onnxtorch {

void register_loss_ops(Registry& r) { (void)r; }

}  // namespace onnxtorch
