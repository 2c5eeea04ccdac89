// The largest elements of windows.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void replace_max_pools(Program& program);

// Declares onnx_torch::max_pool to TorchScript, once: as aten::max_pool1d, 2d and 3d, of numbers of 8 bits as well.
void register_max_pool();

}  // namespace onnxtorch
