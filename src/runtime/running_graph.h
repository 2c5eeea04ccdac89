// The graph of a program as it runs, with checks in it.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <stdexcept>

#include "graph/program.h"

namespace onnxtorch {

// Gives the graph in which each iteration of a loop asks whether the run is to stop.
std::shared_ptr<torch::jit::Graph> interruptible(const std::shared_ptr<torch::jit::Graph>& graph);

// Gives the program's graph likewise. Where trials of open dimensions have told what is known of sizes, each tensor is
// looked at as well: a run in which one has other sizes fails, and `has_other_sizes` tells so by what it throws.
std::shared_ptr<torch::jit::Graph> running_graph(const Program& program);
bool has_other_sizes(const std::exception& failure);

// Tells whether a tensor has the sizes that are known of a value.
bool has_known_sizes(const at::Tensor& t, const torch::jit::Value* value);

}  // namespace onnxtorch
