#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/loop_unrolling.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/csrc/jit/passes/remove_mutation.h>

#include <algorithm>

#include "base/prepare_guard.h"
#include "base/run_guard.h"
#include "graph/constant_propagation.h"
#include "graph/known_type.h"
#include "graph/writes.h"
#include "passes/general/passes.h"

namespace onnxtorch {
namespace jit = torch::jit;

namespace {

constexpr int64_t kMostRepeats = 64;  // the most iterations of a loop that torch unrolls
constexpr double kMostNodes = 1e5;    // loops in loops multiply

// Gives the number of nodes that a block has once its loops are unrolled.
double unrolled_size(const jit::Block* block) {
  double size = 0;
  for (const jit::Node* node : block->nodes()) {
    double inner = 1;
    for (const jit::Block* body : node->blocks()) inner += unrolled_size(body);
    const auto count = node->kind() == c10::prim::Loop ? jit::toIValue(node->input(0)) : std::nullopt;
    size += count && count->isInt() ? inner * static_cast<double>(std::clamp<int64_t>(count->toInt(), 1, kMostRepeats))
                                    : inner;
  }
  return size;
}

// Unrolls loops, and replaces lists to which items are appended by lists of all their items. Tells whether anything has
// changed.
bool take_apart(std::shared_ptr<jit::Graph>& graph) {
  const bool unrolled = unrolled_size(graph->block()) <= kMostNodes && jit::UnrollConstantLoops(graph);
  return jit::RemoveListMutation(graph) || unrolled;
}

}  // namespace

void fold(Program& program) {
  auto& graph = program.graph;
  const MemoryScope memory(most_constant_bytes());
  if (has_host_work(*graph)) {
    if (take_apart(graph)) {
      jit::PeepholeOptimize(graph);
      propagate_constants(graph);
    }
    infer_types(graph->block());
  }
  share_equal_nodes(graph);
  eliminate_dead_code(graph);
}

}  // namespace onnxtorch
