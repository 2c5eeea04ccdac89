#include "passes/fold.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/loop_unrolling.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/csrc/jit/passes/remove_mutation.h>

#include <algorithm>

#include "translate/writes.h"

namespace onnxtorch {
namespace jit = torch::jit;

void fold(Program& program) {
  auto& graph = program.graph;
  if (has_host_work(*graph)) {
    // The translation has decided what it could; loops that are taken apart let more be decided.
    const bool unrolled = jit::UnrollConstantLoops(graph);
    if (jit::RemoveListMutation(graph) || unrolled) {
      jit::PeepholeOptimize(graph);
      jit::ConstantPropagation(graph);
    }
  } else {
    jit::PeepholeOptimize(graph);  // after the translation's propagation of constants
  }
  jit::EliminateCommonSubexpression(graph);
  eliminate_dead_code(graph);
}

}  // namespace onnxtorch
