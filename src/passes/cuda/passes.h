// The passes for CUDA (passes/order.cpp has all, in their order), and what every graph needs there.
#pragma once

#include "graph/program.h"

namespace onnxtorch {

// Computes products with constant weights of few bits by a kernel that takes the weights as they are.
void multiply_bits(Program& program);

// Lays out the weights of convolutions with the channels last.
void lay_out_channels_last(Program& program);

// Lays out the weights of each recurrent layer in one block, as cuDNN reads them; else cuDNN copies them there in each
// run.
void lay_out_recurrent_layers(Program& program);

// Replaces a product with a constant matrix and the addition of a bias to it by one operator, which ATen has a kernel
// for.
void find_linear(Program& program);

// Replaces a softmax between two products of matrices by ATen's scaled_dot_product_attention, where its kernels for
// CUDA give what the products would.
void fuse_attention(Program& program);

// Replaces ATen's scaled_dot_product_attention by an operator that computes the products where ATen's kernels give
// something else, and that gets masks which these kernels understand.
void take_masks(Program& program);

// Replaces operators that ATen computes of fewer types on CUDA than on the CPU, or in fewer digits, by ones that take
// them on any device: products of matrices and maximum pooling of integers, HardSigmoid and HardSwish of doubles.
void take_all_types(Program& program);

// Makes tensors of the device from numbers of the host by kernels that fill them, which nobody waits for and a
// recording repeats: aten::tensor copies them out of the host's memory.
void fill_numbers(Program& program);

}  // namespace onnxtorch
