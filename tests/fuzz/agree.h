// The comparison of two results.
#pragma once

#include <ATen/core/Tensor.h>

#include "onnx_torch/model.h"

namespace onnxtorch::fuzz {

// Tells whether both are of the same kind and structure, with strings that are equal and tensors that agree.
bool agree(const Data& a, const Data& b, bool (*tensors_agree)(const at::Tensor&, const at::Tensor&));

// Tells whether numbers agree as far as sums in another order may differ. A NaN is one in both; what is infinite in one
// may be large in the other.
bool alike(const at::Tensor& a, const at::Tensor& b);

}  // namespace onnxtorch::fuzz
