// Convolutions and matrix products with constant weights become packed operators, with the steps after them:
// activations, additions and products element by element.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void pack(Program& program);

// Tells packed operators of the sizes that are known to come.
void expect_known_sizes(const Program& program);

}  // namespace onnxtorch
