// The operators that onnxruntime writes for its own layouts: com.microsoft.nchwc, com.ms.internal.nhwc.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_layouts_ops(Registry& /*r*/) {}

}  // namespace onnxtorch
