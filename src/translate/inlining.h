// Scripts in the graph.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace onnxtorch {

// Inserts a script's nodes, and of branches that constant arguments decide, such as attributes and absent inputs, the
// one that is taken. Gives the script's result.
torch::jit::Value* insert_script(torch::jit::Graph& graph, torch::jit::Graph& script,
                                 at::ArrayRef<torch::jit::Value*> arguments);

}  // namespace onnxtorch
