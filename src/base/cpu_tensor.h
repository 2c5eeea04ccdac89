// The tensors that kernels for the CPU take.
#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtorch {

// Tells whether the tensor lies in the host's memory, is of this type, and is not empty.
inline bool is_plain(const at::Tensor& t, c10::ScalarType type = c10::kFloat) {
  return t.is_cpu() && t.layout() == c10::kStrided && t.scalar_type() == type && t.numel() > 0;
}

}  // namespace onnxtorch
