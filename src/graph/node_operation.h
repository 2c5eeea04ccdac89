// Operators of nodes as they are run while a graph is made, without TorchScript's division, which may end the process.
#pragma once

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

namespace onnxtorch {

// Gives the function that a node's operator applies to a stack. It throws where two integers have no quotient, while
// TorchScript's division of them ends the process. A script's asserts may come too late for this, since what the script
// computes is learnt before the model runs.
torch::jit::Operation operation_of(const torch::jit::Node* node);

// Tells whether a node divides constant integers that have no quotient.
bool divides_by_zero(const torch::jit::Node* node);

}  // namespace onnxtorch
