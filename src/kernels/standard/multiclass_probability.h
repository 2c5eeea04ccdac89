// The check of pairs of classes that the devices' kernels of multiclass_probability share.
#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtorch {

void check_pairs(const at::Tensor& pairs);

}  // namespace onnxtorch
