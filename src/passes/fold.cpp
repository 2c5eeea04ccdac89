#include "passes/fold.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/loop_unrolling.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/csrc/jit/passes/remove_mutation.h>

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
  if (has_host_work(*graph) && take_apart(graph)) {
    jit::PeepholeOptimize(graph);
    jit::ConstantPropagation(graph);
  }
  share_equal_nodes(graph);
  eliminate_dead_code(graph);
}

}  // namespace onnxtorch
