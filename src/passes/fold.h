// What the known sizes decide is decided: loops over dimensions, lists of them, branches.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void fold(Program& program);

}  // namespace onnxtorch
