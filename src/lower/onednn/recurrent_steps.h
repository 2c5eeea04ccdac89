#pragma once

#include "translate/program.h"

namespace onnxtorch {

// Finds layers whose steps are written out. They must not have been unrolled yet.
void find_recurrent_steps(Program& program);

}  // namespace onnxtorch
