// Scripts in the graph.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include "translate/facts.h"
#include "translate/scripts.h"

namespace onnxtorch {

// Inserts a script's nodes, and of branches that attributes, absent inputs or known sizes decide, the one that is
// taken. What follows from sizes becomes a fact. Gives the script's result.
torch::jit::Value* insert_script(torch::jit::Graph& graph, const Script& script,
                                 at::ArrayRef<torch::jit::Value*> arguments, Facts& facts);

}  // namespace onnxtorch
