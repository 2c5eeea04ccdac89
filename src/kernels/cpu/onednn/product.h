// Matrix products of two tensors that come with the run, by oneDNN.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "base/planned_call.h"

namespace onnxtorch::onednn {

// Computes at::matmul(a, b).
at::Tensor product(const at::Tensor& a, const at::Tensor& b);
std::unique_ptr<PlannedCall> plan_product(const PlannedOperands& of);

}  // namespace onnxtorch::onednn
