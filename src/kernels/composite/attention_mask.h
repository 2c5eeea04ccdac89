// Masks of attention, in the form that is added to scores.
#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtorch {

// Gives a mask to add to scores of this type, made of one that may tell by true what is attended.
at::Tensor added_mask(const at::Tensor& mask, c10::ScalarType type);

}  // namespace onnxtorch
