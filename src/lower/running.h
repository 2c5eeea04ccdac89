// Running sums and products.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void find_running(Program& program);

}  // namespace onnxtorch
