#include "passes/fold.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/loop_unrolling.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/csrc/jit/passes/remove_mutation.h>

namespace onnxtorch {

void fold(Program& program) {
  auto& graph = program.graph;
  torch::jit::PeepholeOptimize(graph);
  torch::jit::ConstantPropagation(graph);
  torch::jit::UnrollConstantLoops(graph);
  torch::jit::RemoveListMutation(graph);
  torch::jit::PeepholeOptimize(graph);
  torch::jit::ConstantPropagation(graph);
  torch::jit::EliminateCommonSubexpression(graph);
  torch::jit::EliminateDeadCode(graph);
}

}  // namespace onnxtorch
