#include "translate/writes.h"

#include <torch/csrc/jit/ir/node_hashing.h>
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <unordered_set>

namespace onnxtorch {

namespace jit = torch::jit;

namespace {

// As torch's analysis takes it: of an operator without a schema that says otherwise, anything may be expected.
bool writes(const jit::Node* node) {
  const jit::Operator* const op = node->maybeOperator();
  if (!op) return !node->kind().is_prim();
  return op->schema().is_mutable() || op->aliasAnalysisKind() == c10::AliasAnalysisKind::CONSERVATIVE;
}

bool has_blocks(const jit::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const jit::Node* node) { return !node->blocks().empty(); });
}

bool is_of_tensors(const c10::Type& type) {
  const auto parts = type.containedTypes();
  return type.kind() == c10::TypeKind::TensorType ||
         (!parts.empty() && std::ranges::all_of(parts, [](const auto& part) { return is_of_tensors(*part); }));
}

}  // namespace

bool may_write(const jit::Block& block) {
  return std::ranges::any_of(block.nodes(), [](const jit::Node* node) {
    return writes(node) ||
           std::ranges::any_of(node->blocks(), [](const jit::Block* inner) { return may_write(*inner); });
  });
}

bool has_host_work(const jit::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const jit::Node* node) {
    return !node->blocks().empty() ||
           (node->kind() != c10::prim::Constant && !std::ranges::all_of(node->outputs(), [](const jit::Value* output) {
              return is_of_tensors(*output->type());
            }));
  });
}

void eliminate_dead_code(const std::shared_ptr<jit::Graph>& graph) {
  if (has_blocks(*graph)) {
    if (may_write(*graph->block())) {
      jit::EliminateDeadCode(graph);
    } else {
      jit::EliminateDeadCode(graph->block());  // the same without an analysis
    }
    return;
  }
  bool unused_writes = false;
  auto nodes = graph->nodes().reverse();
  for (auto it = nodes.begin(); it != nodes.end(); ++it) {
    if (it->hasUses()) continue;
    if (writes(*it)) {
      unused_writes = true;
    } else if (!it->hasSideEffects()) {
      it.destroyCurrent();
    }
  }
  if (unused_writes) jit::EliminateDeadCode(graph);  // knows whether what is written to is read
}

void share_equal_nodes(std::shared_ptr<jit::Graph>& graph) {
  if (has_blocks(*graph) || may_write(*graph->block())) {
    jit::EliminateCommonSubexpression(graph);
    return;
  }
  std::unordered_set<jit::Node*, jit::HashNode, jit::EqualNode> seen;
  for (auto it = graph->nodes().begin(); it != graph->nodes().end(); ++it) {
    if (it->hasSideEffects() || it->isNondeterministic()) continue;
    const auto [same, is_new] = seen.insert(*it);
    if (is_new) continue;
    it->replaceAllUsesWith(*same);
    it.destroyCurrent();
  }
}

}  // namespace onnxtorch
