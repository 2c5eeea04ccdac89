// The tensors that kernels for the CPU take.
#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtorch {

// Tells whether the tensor lies in the host's memory, is of this type, and is not empty.
inline bool is_plain(const at::Tensor& t, c10::ScalarType type = c10::kFloat) {
  return t.is_cpu() && t.layout() == c10::kStrided && t.scalar_type() == type && t.numel() > 0;
}

// Tells whether the tensor's elements lie in the host's memory, one by one, as its sizes, strides and type say.
inline bool lies_in_memory(const at::Tensor& t) {
  return t.defined() && t.is_cpu() && t.layout() == c10::kStrided && !t.is_conj() && !t.is_neg() && !t.is_quantized() &&
         t.has_storage();
}

}  // namespace onnxtorch
