// Graphs whose loops can be stopped.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace onnxtorch {

// Gives the graph as it runs: each iteration of a loop asks whether the run is to stop.
std::shared_ptr<torch::jit::Graph> interruptible(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace onnxtorch
