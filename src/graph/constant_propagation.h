// The computation of what follows from the constants of a graph, before it runs.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace onnxtorch {

// Computes what follows from constants, takes the branches that they decide, and leaves out loops that never run.
// TorchScript's own pass of this name makes an analysis of aliases of the whole graph, which few graphs need.
void propagate_constants(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace onnxtorch
