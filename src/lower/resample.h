// Weighted sums of elements along an axis, as Resize takes them.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void find_resampling(Program& program);

}  // namespace onnxtorch
