// Factors and addends of each channel go into the weights of the convolution or product before them.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void fold_scales(Program& program);

}  // namespace onnxtorch
