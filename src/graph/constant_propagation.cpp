#include "graph/constant_propagation.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/node_hashing.h>
#include <torch/csrc/jit/passes/constant_propagation.h>

#include <algorithm>
#include <unordered_set>

#include "graph/node_operation.h"
#include "graph/writes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

bool is_constant(const jit::Value* value) { return value->node()->kind() == c10::prim::Constant; }

// Tells whether a node stays in the graph even if all its inputs are constant.
bool is_left(const jit::Node* node) {
  static const std::unordered_set<c10::Symbol> kinds{c10::prim::Constant, c10::prim::Uninitialized,
                                                     c10::prim::unchecked_unwrap_optional, c10::aten::dequantize};
  return kinds.contains(node->kind()) || node->isNondeterministic() || node->hasSideEffects();
}

bool never_runs(const jit::Node* loop) {
  return jit::constant_as<int64_t>(loop->input(0)).value_or(1) < 1 ||
         !jit::constant_as<bool>(loop->input(1)).value_or(true);
}

void stand_for(at::ArrayRef<jit::Value*> results, jit::Node* node) {
  for (size_t i = 0; i < results.size(); ++i) node->outputs()[i]->replaceAllUsesWith(results[i]);
}

class Propagation {
 public:
  explicit Propagation(const std::shared_ptr<jit::Graph>& graph) : graph_(*graph), writers_(graph) {}

  void run(jit::Block* block) {
    for (auto it = block->nodes().begin(); it != block->nodes().end();) {
      jit::Node* const node = *it++;
      if (node->kind() == c10::prim::If) {
        branch(node);
      } else if (node->kind() == c10::prim::Loop) {
        loop(node);
      } else if (node->blocks().empty()) {
        compute(node);
      } else {
        for (jit::Block* inner : node->blocks()) run(inner);
      }
    }
  }

 private:
  void compute(jit::Node* node) {
    if (!std::ranges::all_of(node->inputs(), is_constant) || is_left(node) || divides_by_zero(node) ||
        writers_.has_writers(node)) {
      return;
    }
    const auto results = jit::runNodeIfInputsAreConstant(node);
    if (!results) return;
    const jit::WithInsertPoint at(node);
    for (size_t i = 0; i < results->size(); ++i) {
      const auto constant = jit::tryInsertConstant(graph_, (*results)[i]);
      if (!constant) continue;
      if ((*results)[i].isNone()) (*constant)->setType(node->output(i)->type());
      node->output(i)->replaceAllUsesWith(*constant);
    }
  }

  void branch(jit::Node* node) {
    const auto decided = jit::constant_as<bool>(node->input());
    if (!decided) {
      for (jit::Block* inner : node->blocks()) run(inner);
      join_results(node);
      return;
    }
    jit::Block* const taken = node->blocks()[*decided ? 0 : 1];
    run(taken);
    while (taken->nodes().begin() != taken->nodes().end()) (*taken->nodes().begin())->moveBefore(node);
    stand_for(taken->outputs(), node);
    node->destroy();
  }

  // Replaces each result that is the same in both branches by that one value, which is then no result of theirs.
  static void join_results(jit::Node* node) {
    jit::Block *const yes = node->blocks()[0], *const no = node->blocks()[1];
    for (size_t i = node->outputs().size(); i-- > 0;) {
      jit::Value *const result = yes->outputs()[i], *const other = no->outputs()[i];
      if (result != other) {
        if (!is_constant(result) || !jit::EqualNode()(result->node(), other->node())) continue;
        if (result->node()->owningBlock() == yes) result->node()->moveBefore(node);
      }
      node->output(i)->replaceAllUsesWith(result);
      node->eraseOutput(i);
      for (jit::Block* inner : {yes, no}) inner->eraseOutput(i);
    }
  }

  void loop(jit::Node* node) {
    constexpr size_t kBefore = 2;  // the inputs before the carried values: the number of iterations and the condition
    if (never_runs(node)) {
      stand_for(node->inputs().slice(kBefore), node);
      node->destroy();
      return;
    }
    jit::Block* const body = node->blocks()[0];
    run(body);
    for (size_t i = node->outputs().size(); i-- > 0;) {  // a value that no iteration changes need not be carried
      jit::Value* const carried = body->inputs()[i + 1];
      if (carried != body->outputs()[i + 1]) continue;
      for (jit::Value* same : {node->output(i), carried}) same->replaceAllUsesWith(node->input(i + kBefore));
      node->eraseOutput(i);
      node->removeInput(i + kBefore);
      body->eraseInput(i + 1);
      body->eraseOutput(i + 1);
    }
  }

  jit::Graph& graph_;
  const Writers writers_;
};

}  // namespace

void propagate_constants(const std::shared_ptr<jit::Graph>& graph) {
  Propagation(graph).run(graph->block());
  eliminate_dead_code(graph);
}

}  // namespace onnxtorch
