#include "translate/writes.h"

#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>

namespace onnxtorch {

namespace jit = torch::jit;

namespace {

// As torch's analysis takes it: of an operator without a schema that says otherwise, anything may be expected.
bool writes(const jit::Node* node) {
  const jit::Operator* const op = node->maybeOperator();
  if (!op) return !node->kind().is_prim();
  return op->schema().is_mutable() || op->aliasAnalysisKind() == c10::AliasAnalysisKind::CONSERVATIVE;
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
  if (may_write(*graph->block())) {
    jit::EliminateDeadCode(graph);
  } else {
    jit::EliminateDeadCode(graph->block());  // the same without an analysis
  }
}

}  // namespace onnxtorch
