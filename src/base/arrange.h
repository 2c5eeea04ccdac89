// Copies of a tensor's elements into another order of memory, for which ATen's copies take several times as long.
#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtorch {

// Tells whether the tensor has these strides; that of a dimension of size 1 does not matter.
__attribute__((visibility("default"))) bool has_strides(const at::Tensor& t, at::IntArrayRef strides);

// Gives the tensor with these strides, or itself where it has them. They are those of a dense tensor; the stride of a
// dimension of size 1 does not matter.
__attribute__((visibility("default"))) at::Tensor arranged(const at::Tensor& t, at::IntArrayRef strides);

// Copies all elements. The tensors are of one type and of the same sizes.
__attribute__((visibility("default"))) void copy_into(const at::Tensor& to, const at::Tensor& from);

// Copies into a part of the tensor, which begins at `start` in the dimension `dim`.
__attribute__((visibility("default"))) void copy_into(const at::Tensor& to, int64_t dim, int64_t start,
                                                      const at::Tensor& from);

// Gives the tensor with its last dimension innermost.
__attribute__((visibility("default"))) at::Tensor contiguous(const at::Tensor& t);

// Gives a copy with memory of its own. It spares a small tensor ATen's dispatch, which takes longer than the copy.
__attribute__((visibility("default"))) at::Tensor copy_of(const at::Tensor& t);

}  // namespace onnxtorch
