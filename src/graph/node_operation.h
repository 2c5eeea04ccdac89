// What nodes compute while a graph is made, without the end of the process that TorchScript's division may be.
#pragma once

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

namespace onnxtorch {

// What a node's operator does to a stack. Where two integers have no quotient it throws; TorchScript's division of
// them ends the process. A script's asserts may come too late: what it computes is learnt before the model runs.
torch::jit::Operation operation_of(const torch::jit::Node* node);

// Whether a node divides constant integers that have no quotient.
bool divides_by_zero(const torch::jit::Node* node);

}  // namespace onnxtorch
