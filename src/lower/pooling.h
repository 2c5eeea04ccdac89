// The largest elements of windows, and their means.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void replace_pools(Program& program);

// Declares onnx_torch::max_pool and average_pool to TorchScript, once: as ATen's pools of one to three dimensions, the
// largest of numbers of 8 bits as well.
void register_pools();

}  // namespace onnxtorch
