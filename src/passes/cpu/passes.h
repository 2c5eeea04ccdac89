// The passes for the CPU (passes/order.cpp has all, in their order).
#pragma once

#include "graph/program.h"

namespace onnxtorch {

// Replaces each script that has an operator of its own by that operator.
void take_kernels(Program& program);

// Computes in float32 the values of a type for which this CPU has no instructions. Connected operators pass one another
// values that are not rounded; these are rounded for a cast of the model's, for an output, and for an operator that is
// left as it is. If a graph has no weights of that type, only its products are computed so, and each is rounded.
void widen_halves(Program& program);

// Computes a softmax between two products of matrices as one operator, the weights of a few rows at a time.
void find_attention(Program& program);

// Normalizes groups of channels, and single channels, of tensors that lie channels-last, as they lie.
void replace_group_norms(Program& program);

// Takes the largest elements of windows, and their means, row by row.
void replace_pools(Program& program);

// Computes row by row what the passes below find.
void replace_rows(Program& program);
void find_softmax(Program& program);
void find_layer_norm(Program& program);  // and RMSNorm
void find_argmax(Program& program);
void find_channel_means(Program& program);  // of images that lie channels-last

// Finds rotary position embeddings, as exporters write them out: the halves of each row are turned by an angle for each
// element.
void find_rotary_embeddings(Program& program);

// Moves elements by copies that are faster than ATen's, and into memory that is used again.
void replace_copies(Program& program);

// --- With oneDNN ---

// Lays out the weights of directions of recurrent layers for which ATen has no operator.
void find_recurrent_steps(Program& program);

// Replaces QuantizeLinear and DequantizeLinear of int8 and uint8 by operators, and computes what lies between them on
// the bytes.
void find_quantized(Program& program);
void find_integer_products(Program& program);  // the part of DynamicQuantizeLinear, ConvInteger and MatMulInteger

// Replaces products with constant weights of few bits by packed operators.
void pack_bits(Program& program);

// Replaces convolutions and matrix products with constant weights by packed operators, with the steps after them:
// activations, additions and products element by element.
void pack(Program& program);

// Lays out the weights of recurrent layers once.
void pack_recurrent_layers(Program& program);

// Has oneDNN compute the products of two matrices that come with the run.
void replace_products(Program& program);

}  // namespace onnxtorch
