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
namespace {

namespace jit = torch::jit;

bool is_of_tensors(const c10::Type& type) {
  const auto parts = type.containedTypes();
  return type.kind() == c10::TypeKind::TensorType ||
         (!parts.empty() && std::ranges::all_of(parts, [](const auto& part) { return is_of_tensors(*part); }));
}

// Whether there are branches, loops, or values on the host that are not constant.
bool has_host_work(const jit::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const jit::Node* node) {
    return !node->blocks().empty() ||
           (node->kind() != c10::prim::Constant && !std::ranges::all_of(node->outputs(), [](const jit::Value* output) {
              return is_of_tensors(*output->type());
            }));
  });
}

}  // namespace

void fold(Program& program) {
  auto& graph = program.graph;
  bool changed = jit::PeepholeOptimize(graph);  // after the translation's propagation of constants
  if (has_host_work(*graph)) {
    changed |= jit::ConstantPropagation(graph);
    changed |= jit::UnrollConstantLoops(graph);
    changed |= jit::RemoveListMutation(graph);
    if (changed) {
      jit::PeepholeOptimize(graph);
      jit::ConstantPropagation(graph);
    }
  }
  jit::EliminateCommonSubexpression(graph);
  eliminate_dead_code(graph);
}

}  // namespace onnxtorch
