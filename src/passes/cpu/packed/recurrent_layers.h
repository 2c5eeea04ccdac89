// The insertion of packed recurrent layers into a graph, for the passes that recognize them.
#pragma once

#include <ATen/core/ivalue.h>

#include "graph/program.h"
#include "kernels/cpu/onednn/operators.h"

namespace torch::jit {
struct Value;
}

namespace onnxtorch {

// Inserts the packed operator of a layer, whose states are a list. Gives y and the last states.
at::ArrayRef<torch::jit::Value*> insert_packed(Program& program, const Recurrent& layer, torch::jit::Value* x,
                                               torch::jit::Value* states, torch::jit::Value* within = nullptr);

torch::jit::Value* list_of(torch::jit::Graph& graph, at::ArrayRef<torch::jit::Value*> tensors);

}  // namespace onnxtorch
