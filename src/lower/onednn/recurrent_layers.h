#pragma once

#include "translate/program.h"

namespace onnxtorch {

// Lays out the weights of recurrent layers once.
void pack_recurrent_layers(Program& program);

}  // namespace onnxtorch
