// The inlining of scripts in the graph.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <vector>

#include "translate/facts.h"
#include "translate/scripts.h"

namespace onnxtorch {

// Inserts a script's nodes. Of branches that attributes, absent inputs or known sizes decide, only the one that is
// taken is inserted. What follows from sizes becomes a fact. Gives the script's results.
std::vector<torch::jit::Value*> insert_script(torch::jit::Graph& graph, const Script& script,
                                              at::ArrayRef<torch::jit::Value*> arguments, Facts& facts,
                                              KeptScripts keeps = nullptr);

// Replaces a node that calls a kept script by the script, unless the node calls none or one that stays. What becomes
// known is a fact, where the script writes to nothing. Gives what stands for the node's results then.
std::vector<torch::jit::Value*> write_out(torch::jit::Node* node, Facts& facts, KeptScripts keeps = nullptr);

}  // namespace onnxtorch
