#pragma once

#include "translate/program.h"

namespace onnxtorch {

// Computes what is of a type for which this CPU has no instructions in float32, from end to end of what hangs together:
// values are rounded where they leave it, to a cast of the model's, an output or an operator that is left as it is.
// Where a graph has no weights of that type, only its products are computed so, and rounded each.
void widen_halves(Program& program);

}  // namespace onnxtorch
