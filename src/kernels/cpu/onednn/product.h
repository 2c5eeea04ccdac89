// Matrix products of two tensors that come with the run, by oneDNN.
#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtorch::onednn {

// at::matmul(a, b).
at::Tensor product(const at::Tensor& a, const at::Tensor& b);

}  // namespace onnxtorch::onednn
