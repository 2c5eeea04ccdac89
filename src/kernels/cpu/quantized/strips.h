// A weight of int8 in strips (`Strip`), the steps of which are put into groups so that sums fit 16 bits.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/simd/panel_product.h"

namespace onnxtorch {

// Lays out matrices [count, rows, columns] in strips of so many columns; gives bytes that `strip_at` reads.
at::Tensor in_strips(const at::Tensor& matrices, int64_t strip_columns);

// Gives one of the strips; those of a matrix follow one another.
Strip strip_at(const at::Tensor& bytes, int64_t number);

// Tells whether bytes from elsewhere are strips of matrices of these sizes, so that all that is read lies within.
bool are_strips(const at::Tensor& bytes, at::IntArrayRef sizes, int64_t strip_columns);

// Gives the matrices that the bytes were made of.
at::Tensor from_strips(const at::Tensor& bytes, at::IntArrayRef sizes, int64_t strip_columns);

}  // namespace onnxtorch
