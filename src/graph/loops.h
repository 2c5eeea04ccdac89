// The loops of a graph, and what keeps TorchScript's interpreter from taking their operands too soon.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <vector>

namespace onnxtorch {

// Gives the loops of a graph, and of the blocks in it.
std::vector<torch::jit::Node*> loops_of(std::shared_ptr<torch::jit::Graph> graph);

// Makes each loop run before the node that takes its result is begun. TorchScript's interpreter begins with the node
// that takes the result, where that is the next one and the result is the loop's only one. It has then counted this
// node's other operands as used, takes a use in the loop's body for the last one, and moves the value away in the first
// iteration.
void keep_loops_apart(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace onnxtorch
