// Operators of 8 and 16 bits: QLinear…, QGemm, dynamic products, QuantizeLinear and DequantizeLinear.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_quantization_ops(Registry& /*r*/) {}

}  // namespace onnxtorch
