// Products of two matrices that come with the run go to oneDNN; two of them with a softmax between become one
// attention.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void find_attention(Program& program);
void replace_products(Program& program);

}  // namespace onnxtorch
