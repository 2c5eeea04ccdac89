// The pass for the blocks of channels of onnxruntime's layout com.microsoft.nchwc.
#pragma once

#include "graph/program.h"

namespace onnxtorch {

// Takes out the blocks that such operators pass to one another, around what computes element by element, too.
void find_blocks(Program& program);

}  // namespace onnxtorch
