#include "graph/writes.h"

#include <torch/csrc/jit/ir/node_hashing.h>
#include <torch/csrc/jit/passes/common_subexpression_elimination.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace onnxtorch {

namespace jit = torch::jit;

namespace {

// Tells whether a node may write to memory, as torch's analysis does: an operator without a schema that says otherwise
// may do anything.
bool writes(const jit::Node* node) {
  const jit::Operator* const op = node->maybeOperator();
  if (!op) return !node->kind().is_prim();
  return op->schema().is_mutable() || op->aliasAnalysisKind() == c10::AliasAnalysisKind::CONSERVATIVE;
}

bool has_blocks(const jit::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const jit::Node* node) { return !node->blocks().empty(); });
}

bool has_side_effects(const jit::Block& block) {
  return std::ranges::any_of(block.nodes(), [](const jit::Node* node) {
    return node->hasSideEffects() ||
           std::ranges::any_of(node->blocks(), [](const jit::Block* inner) { return has_side_effects(*inner); });
  });
}

// Tells whether a node, with all inside it, does nothing but compute its outputs.
bool only_computes(const jit::Node* node) {
  return !writes(node) && !node->hasSideEffects() && std::ranges::none_of(node->blocks(), [](const jit::Block* inner) {
    return may_write(*inner) || has_side_effects(*inner);
  });
}

// Takes out the nodes that compute values which nothing uses.
void take_out_unused(jit::Block* block) {
  auto nodes = block->nodes().reverse();
  for (auto it = nodes.begin(); it != nodes.end(); ++it) {
    for (jit::Block* inner : it->blocks()) take_out_unused(inner);
    if (!it->hasUses() && only_computes(*it)) it.destroyCurrent();
  }
}

// Tells whether an output of a branch or loop is computed for nothing.
bool has_unused_outputs(const jit::Node* node) {
  const bool is_loop = node->kind() == c10::prim::Loop;
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    const bool is_carried = is_loop && !node->blocks()[0]->inputs()[i + 1]->uses().empty();
    if (node->outputs()[i]->uses().empty() && !is_carried) return true;
  }
  return false;
}

// Tells whether nothing reads what a node writes to, as far as the uses of that value tell.
bool writes_in_vain(const jit::Node* node) {
  if (node->hasUses() || node->inputs().empty() || !writes(node)) return false;
  return std::ranges::all_of(node->input(0)->uses(), [](const jit::Use& use) {
    return use.offset == 0 && !use.user->hasUses() && writes(use.user);
  });
}

bool is_number(const c10::Type& type) {
  using Kind = c10::TypeKind;
  return type.kind() == Kind::IntType || type.kind() == Kind::FloatType || type.kind() == Kind::BoolType ||
         type.kind() == Kind::NumberType;
}

bool is_list_of_numbers(const c10::Type& type) {
  return type.kind() == c10::TypeKind::ListType && is_number(*type.containedType(0));
}

// Tells whether a node may write to something else than lists of numbers.
bool writes_to_tensors(const jit::Node* node) {
  if (!writes(node)) return false;
  const jit::Operator* const op = node->maybeOperator();
  if (!op || op->aliasAnalysisKind() == c10::AliasAnalysisKind::CONSERVATIVE) return true;
  const auto& arguments = op->schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* const alias = arguments[i].alias_info();
    if (alias && alias->isWrite() && !is_list_of_numbers(*node->input(i)->type())) return true;
  }
  return false;
}

bool may_write_to_tensors(const jit::Block& block) {
  return std::ranges::any_of(block.nodes(), [](const jit::Node* node) {
    return writes_to_tensors(node) ||
           std::ranges::any_of(node->blocks(), [](const jit::Block* inner) { return may_write_to_tensors(*inner); });
  });
}

// Tells whether the lists that an operator gives are new ones, as its schema says.
bool gives_new_lists(const jit::Node* node) {
  const jit::Operator* const op = node->maybeOperator();
  if (!op || (op->aliasAnalysisKind() != c10::AliasAnalysisKind::FROM_SCHEMA &&
              op->aliasAnalysisKind() != c10::AliasAnalysisKind::PURE_FUNCTION)) {
    return false;
  }
  return std::ranges::none_of(op->schema().returns(), [](const c10::Argument& result) { return result.alias_info(); });
}

// Tells whether a list of numbers is made by its own node, and no other value stands for it.
bool is_plain_list(const jit::Value* list) {
  const jit::Node* const maker = list->node();
  const bool is_made = maker->kind() == c10::prim::ListConstruct || maker->kind() == c10::prim::Constant;
  if (!is_made && !gives_new_lists(maker)) return false;
  return std::ranges::all_of(list->uses(), [](const jit::Use& use) {
    return use.user->maybeOperator() && !writes(use.user) &&
           std::ranges::all_of(use.user->outputs(), [&](const jit::Value* output) {
             const c10::Type& type = *output->type();
             return is_number(type) || type.kind() == c10::TypeKind::TensorType ||
                    (is_list_of_numbers(type) && gives_new_lists(use.user));
           });
  });
}

// Tells whether there may be more to take out, which torch's analysis finds.
bool may_have_dead_code(const jit::Block& block) {
  return std::ranges::any_of(block.nodes(), [](const jit::Node* node) {
    return writes_in_vain(node) || (!node->blocks().empty() && has_unused_outputs(node)) ||
           std::ranges::any_of(node->blocks(), [](const jit::Block* inner) { return may_have_dead_code(*inner); });
  });
}

bool is_of_tensors(const c10::Type& type) {
  const auto parts = type.containedTypes();
  return type.kind() == c10::TypeKind::TensorType ||
         (!parts.empty() && std::ranges::all_of(parts, [](const auto& part) { return is_of_tensors(*part); }));
}

// Tells whether a node takes a value for a result of the graph.
bool is_result(const jit::Node* user) {
  const bool is_joined = user->kind() == c10::prim::TupleConstruct && user->output()->uses().size() == 1;
  const jit::Node* const last = is_joined ? user->output()->uses()[0].user : user;
  return last->kind() == c10::prim::Return && last->owningBlock() == last->owningGraph()->block();
}

bool only_reads(const jit::Use& use);

// Tells whether a use makes a list that a branch has made the result of that branch, which is read and no more.
bool gives_to_reader(const jit::Use& use) {
  const jit::Block* const branch = use.user->owningBlock();
  const bool is_made_there = use.user->input(use.offset)->node()->owningBlock() == branch;
  const jit::Node* const node = branch->owningNode();
  return use.user->kind() == c10::prim::Return && is_made_there && node && node->kind() == c10::prim::If &&
         std::ranges::all_of(node->output(use.offset)->uses(), only_reads);
}

// Tells whether a use reads a list, and gives nothing that is written to and may stand for it.
bool only_reads(const jit::Use& use) {
  return is_result(use.user) || use.user->kind() == c10::aten::__getitem__ ||
         (gives_new_lists(use.user) && !writes(use.user)) || gives_to_reader(use);
}

}  // namespace

bool is_written(const jit::Value* value) {
  return std::ranges::any_of(value->uses(), [](const jit::Use& use) {
    const jit::Operator* const op = use.user->maybeOperator();
    if (!op || use.offset >= op->schema().arguments().size()) return false;
    const c10::AliasInfo* const alias = op->schema().arguments()[use.offset].alias_info();
    return alias && alias->isWrite();
  });
}

bool is_own_list(const jit::Value* list) {
  if (list->type()->kind() != c10::TypeKind::ListType) return false;
  if (list->node()->kind() != c10::prim::ListConstruct && !gives_new_lists(list->node())) return false;
  return std::ranges::all_of(list->uses(), [](const jit::Use& use) {
    const bool changes = use.user->kind() == c10::aten::append || use.user->kind() == c10::aten::_set_item;
    return changes ? use.offset == 0 && !use.user->hasUses() : only_reads(use);
  });
}

bool writes_to_own_lists(const jit::Block& block) {
  return std::ranges::all_of(block.nodes(), [](const jit::Node* node) {
    return (!writes(node) || (!node->inputs().empty() && is_own_list(node->input(0)))) &&
           std::ranges::all_of(node->blocks(), [](const jit::Block* inner) { return writes_to_own_lists(*inner); });
  });
}

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
  take_out_unused(graph->block());
  if (!may_have_dead_code(*graph->block())) return;
  if (may_write(*graph->block())) {
    jit::EliminateDeadCode(graph);
  } else {
    jit::EliminateDeadCode(graph->block());  // does the same without an analysis
  }
  take_out_unused(graph->block());  // takes out the constants that only a loop needed
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

Writers::Writers(std::shared_ptr<jit::Graph> graph)
    : graph_(std::move(graph)),
      any_(may_write(*graph_->block())),
      any_tensor_(may_write_to_tensors(*graph_->block())) {}

bool Writers::has_writers(const jit::Node* node) const {
  const auto may_be = [this](const jit::Value* value) { return may_be_written(value); };
  if (!any_ || (std::ranges::none_of(node->inputs(), may_be) && std::ranges::none_of(node->outputs(), may_be))) {
    return false;
  }
  if (std::ranges::any_of(node->inputs(), is_written) || std::ranges::any_of(node->outputs(), is_written)) return true;
  if (!aliases_) aliases_.emplace(graph_);
  return aliases_->hasWriters(node);
}

// Tells whether a value may be written to, as far as types and the nodes around tell.
bool Writers::may_be_written(const jit::Value* value) const {
  const c10::Type& type = *value->type();
  if (is_of_tensors(type)) return any_tensor_;
  if (is_list_of_numbers(type)) return !is_plain_list(value);
  return !is_number(type) && type.kind() != c10::TypeKind::NoneType && type.kind() != c10::TypeKind::StringType &&
         type.kind() != c10::TypeKind::DeviceObjType;
}

}  // namespace onnxtorch
