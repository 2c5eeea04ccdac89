#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <vector>

namespace onnxtorch {

// Those of a graph, and of the blocks in it.
std::vector<torch::jit::Node*> loops_of(std::shared_ptr<torch::jit::Graph> graph);

}  // namespace onnxtorch
