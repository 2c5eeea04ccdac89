#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtorch {

void check_keys(const at::Tensor& x, const at::Tensor& keys);

}  // namespace onnxtorch
