// Operators that move elements, by copies that are faster than ATen's and into memory that is used again.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void replace_copies(Program& program);

}  // namespace onnxtorch
