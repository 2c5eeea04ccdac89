#pragma once

#include "translate/program.h"

namespace onnxtorch {

// Finds LayerNorm and GroupNorm in the ways that exporters write them.
void find_normalizations(Program& program);

}  // namespace onnxtorch
