// Lowering for CUDA.
#pragma once

#include <span>

#include "passes/pass.h"

namespace onnxtorch {

std::span<const Pass> cuda_passes();

}  // namespace onnxtorch
