// DynamicQuantizeLinear, and ConvInteger and MatMulInteger with constant weights, become operators.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void find_integer_products(Program& program);

}  // namespace onnxtorch
