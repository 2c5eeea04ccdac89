// The pass for the blocks of channels of onnxruntime's layout com.microsoft.nchwc.
#pragma once

#include "graph/program.h"

namespace onnxtorch {

// Takes out the blocks that such operators pass to one another, also around nodes that compute element by element.
void find_blocks(Program& program);

}  // namespace onnxtorch
