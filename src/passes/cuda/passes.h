// The passes for CUDA (passes/order.cpp has all, in their order), and what every graph needs there.
#pragma once

#include "graph/program.h"

namespace onnxtorch {

// Products with constant weights of few bits are computed by a kernel that takes the weights as they are.
void multiply_bits(Program& program);

// Lays out the weights of convolutions with the channels last.
void lay_out_channels_last(Program& program);

// Lays out the weights of each recurrent layer in one block, as cuDNN reads them; else it copies them there in each
// run.
void lay_out_recurrent_layers(Program& program);

// A product with a constant matrix and the addition of a bias to it become one operator, which ATen has a kernel for.
void find_linear(Program& program);

// A softmax between two products of matrices becomes ATen's scaled_dot_product_attention, where its kernels for CUDA
// give what the products would.
void fuse_attention(Program& program);

// ATen's scaled_dot_product_attention becomes one that computes the products where its kernels give something else, and
// gets masks that they understand.
void take_masks(Program& program);

// Operators that ATen computes of fewer types on CUDA than on the CPU, or in fewer digits, become ones that take them
// on any device: products of matrices and maximum pooling of integers, HardSigmoid and HardSwish of doubles.
void take_all_types(Program& program);

// Numbers of the host become tensors of the device by kernels that fill them, which nobody waits for and a recording
// repeats: aten::tensor copies them out of the host's memory.
void fill_numbers(Program& program);

}  // namespace onnxtorch
