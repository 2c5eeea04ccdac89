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

namespace {

// Takes apart loops, and what is appended to lists. Whether there was any.
bool take_apart(std::shared_ptr<jit::Graph>& graph) {
  const bool unrolled = jit::UnrollConstantLoops(graph);
  return jit::RemoveListMutation(graph) || unrolled;
}

}  // namespace

void fold(Program& program) {
  auto& graph = program.graph;
  const bool has_work = has_host_work(*graph), taken_apart = has_work && take_apart(graph);
  // The translation has propagated constants, and where the host has work has done this, too.
  if (taken_apart || !has_work) jit::PeepholeOptimize(graph);
  if (taken_apart) jit::ConstantPropagation(graph);
  jit::EliminateCommonSubexpression(graph);
  eliminate_dead_code(graph);
}

}  // namespace onnxtorch
