// Products of two matrices that come with the run go to oneDNN.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void replace_products(Program& program);

}  // namespace onnxtorch
