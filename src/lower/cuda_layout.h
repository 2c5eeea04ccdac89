// How the weights of convolutions lie on CUDA.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void lay_out_channels_last(Program& program);

}  // namespace onnxtorch
