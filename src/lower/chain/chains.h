// Element-wise operators that work on one another's results become one operator.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void find_chains(Program& program);

}  // namespace onnxtorch
