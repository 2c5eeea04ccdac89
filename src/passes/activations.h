// The ways in which exporters write Silu, HardSwish and Gelu become those operators.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void find_activations(Program& program);

}  // namespace onnxtorch
