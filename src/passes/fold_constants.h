// What depends on constants alone is computed once: casts and layouts of weights, weights that are stored quantized.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void fold_constants(Program& program);

}  // namespace onnxtorch
