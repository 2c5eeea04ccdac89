#include "ops/ops.h"
#include "registry/registry.h"

namespace onnxtorch {

void register_signal_ops(Registry& r) { (void)r; }

}  // namespace onnxtorch
