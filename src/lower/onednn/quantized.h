// QuantizeLinear and DequantizeLinear of 8 bits become operators, and what lies between them is done on the bytes.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void find_quantized(Program& program);

}  // namespace onnxtorch
