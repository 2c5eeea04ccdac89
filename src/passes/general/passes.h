// The passes for every device (passes/order.cpp has all, in their order).
#pragma once

#include "graph/program.h"

namespace onnxtorch {

// Decides what the known sizes decide: loops over dimensions, lists of them, branches.
void fold(Program& program);

// Tells whether a script is a Gather, GatherElements or ScatterElements whose indices may count from the end.
bool is_by_index(c10::Symbol script);
// Lets an operator stand for each of these scripts, that counts while it picks or places.
void take_gathers(Program& program);

// Tells whether a program has scripts that are still one node each, as no pass has taken them.
bool has_kept_scripts(const Program& program);
// Writes out these scripts, and folds what they are made of.
void expand(Program& program);

// Computes once what depends on constants alone: casts and layouts of weights, weights that are stored quantized.
void fold_constants(Program& program);

// Finds LayerNorm and GroupNorm in the ways that exporters write them.
void find_normalizations(Program& program);

// Finds Silu, HardSwish and Gelu in the ways that exporters write them.
void find_activations(Program& program);

// Brings steps that only move elements about together, and takes out those that undo one another.
void simplify_layout(Program& program);

// Puts factors and addends of each channel into the weights of the convolution or product before them.
void fold_scales(Program& program);

// Computes of a result no more than its first or last elements along a dimension, where nothing else of it is read.
void compute_parts(Program& program);

}  // namespace onnxtorch
