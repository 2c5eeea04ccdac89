// The passes for CUDA (passes/order.cpp has all, in their order), and what every graph needs there.
#pragma once

#include "graph/program.h"

namespace onnxtorch {

// Lays out the weights of convolutions with the channels last.
void lay_out_channels_last(Program& program);

// A softmax between two products of matrices becomes ATen's scaled_dot_product_attention, where its kernels for CUDA
// give what the products would.
void fuse_attention(Program& program);

// ATen's scaled_dot_product_attention becomes one that computes the products where its kernels give something else, and
// gets masks that they understand.
void take_masks(Program& program);

// Products of matrices and maximum pooling, which ATen computes of floating-point numbers only on CUDA, and of integers
// as well on the CPU, become operators that take integers on any device.
void take_integers(Program& program);

}  // namespace onnxtorch
