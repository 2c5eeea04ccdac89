#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtorch {

// A mask to add to scores of this type, of one that may tell by true what is attended.
at::Tensor added_mask(const at::Tensor& mask, c10::ScalarType type);

}  // namespace onnxtorch
