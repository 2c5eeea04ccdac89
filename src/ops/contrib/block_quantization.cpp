// Products with weights of 2 to 8 bits, quantized by blocks.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_block_quantization_ops(Registry& /*r*/) {}

}  // namespace onnxtorch
