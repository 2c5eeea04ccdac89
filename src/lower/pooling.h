// The largest elements of windows over what lies channels-last, taken as it lies.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void replace_max_pools(Program& program);

}  // namespace onnxtorch
