#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtorch {

void check_pairs(const at::Tensor& pairs);

}  // namespace onnxtorch
