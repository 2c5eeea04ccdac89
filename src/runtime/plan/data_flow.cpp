#include "runtime/plan/data_flow.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "graph/operator_traits.h"
#include "graph/walk.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

// Tells whether one node is in a block of another.
bool is_inside(const jit::Node* inner, const jit::Node* node) {
  for (const jit::Node* at = inner->owningBlock()->owningNode(); at; at = at->owningBlock()->owningNode()) {
    if (at == node) return true;
  }
  return false;
}

bool comes_of_data(const jit::Value* value, std::unordered_set<const jit::Value*>& seen) {
  if (!seen.insert(value).second) return false;
  const jit::Node* const node = value->node();
  if (value->type()->isSubtypeOf(*c10::TensorType::get())) return true;
  if (node->kind() == c10::prim::Param) {
    const jit::Node* const owner = node->owningBlock()->owningNode();
    if (!owner || owner->kind() != c10::prim::Loop) return false;
    const jit::Block* const body = owner->blocks()[0];
    const size_t place = value->offset();
    if (place == 0) return false;  // the index of the iteration
    return comes_of_data(owner->input(place + 1), seen) || comes_of_data(body->outputs()[place], seen);
  }
  for (const jit::Block* block : node->blocks()) {
    if (node->kind() != c10::prim::If) return true;
    if (comes_of_data(block->outputs()[value->offset()], seen)) return true;
  }
  if (has(node, Trait::ReadsSizes) && !node->inputs().empty() &&
      node->input(0)->type()->isSubtypeOf(*c10::TensorType::get())) {
    return false;
  }
  return std::ranges::any_of(node->inputs(), [&](const jit::Value* input) { return comes_of_data(input, seen); });
}

}  // namespace

bool may_come_of_data(const jit::Value* value) {
  std::unordered_set<const jit::Value*> seen;
  return comes_of_data(value, seen);
}

bool writes_to_tensor(const jit::Node* node) {
  const c10::FunctionSchema* const schema = node->maybeSchema();
  if (!schema) return false;
  return std::ranges::any_of(schema->arguments(), [](const c10::Argument& argument) {
    return argument.alias_info() && argument.alias_info()->isWrite() &&
           argument.type()->isSubtypeOf(*c10::TensorType::get());
  });
}

bool writes(const jit::Node* node) {
  const c10::FunctionSchema* const schema = node->maybeSchema();
  return schema && schema->is_mutable();
}

bool may_give_views(const jit::Node* node) {
  const jit::Operator* const op = node->maybeOperator();
  return !op || !op->isC10Op() || std::ranges::any_of(op->schema().returns(), [](const c10::Argument& result) {
    return result.alias_info() != nullptr;
  });
}

bool is_foreign(const jit::Node* node) {
  const c10::Symbol kind = node->kind();
  return !kind.is_aten() && !kind.is_prim() && std::string_view(kind.ns().toUnqualString()) != "onnx_torch";
}

bool draws_random_numbers(const jit::Node* node) {
  return node->isNondeterministic() ||
         std::string_view(node->kind().toQualString()).find("random") != std::string::npos;
}

std::vector<jit::Value*> captured(jit::Node* node) {
  std::vector<jit::Value*> found;
  const auto add = [&](jit::Value* value) {
    const bool is_known = is_inside(value->node(), node) || std::ranges::find(found, value) != found.end();
    if (!is_known) found.push_back(value);
  };
  std::ranges::for_each(node->inputs(), add);
  for (jit::Block* block : node->blocks()) {
    std::ranges::for_each(block->outputs(), add);
    for_each_node(block, [&](jit::Node* inner) {
      std::ranges::for_each(inner->inputs(), add);
      for (jit::Block* b : inner->blocks()) std::ranges::for_each(b->outputs(), add);
    });
  }
  return found;
}

bool writes_outside(jit::Node* node) {
  bool writes_tensors = false, writes_lists = false, found = false;
  for (jit::Block* block : node->blocks()) {
    for_each_node(block, [&](jit::Node* inner) {
      const c10::FunctionSchema* const schema = inner->maybeSchema();
      if (!schema || !schema->is_mutable()) return;
      writes_tensors |= writes_to_tensor(inner);
      writes_lists = true;
      for (size_t i = 0; i < inner->inputs().size() && i < schema->arguments().size(); ++i) {
        const c10::AliasInfo* const alias = schema->arguments()[i].alias_info();
        found |= alias && alias->isWrite() && !is_inside(inner->input(i)->node(), node);
      }
    });
  }
  if (found || writes_tensors) return true;
  // A loop writes to the lists that it is given by way of its block's parameters.
  return writes_lists && std::ranges::any_of(captured(node), [&](const jit::Value* value) {
           return value->type()->kind() == c10::TypeKind::ListType &&
                  std::ranges::any_of(value->uses(), [&](const jit::Use& use) {
                    return use.user != node && !is_inside(use.user, node);
                  });
         });
}

bool form_follows(const jit::Node* node, std::span<const IValue> arguments) {
  const std::string_view name = node->kind().toQualString();
  if (name == "aten::index" || name == "aten::index_put" || name == "aten::index_put_") {
    for (const IValue& argument : arguments) {
      if (!argument.isList() || argument.isIntList()) continue;
      for (const IValue& index : argument.toListRef()) {
        if (!index.isTensor() || !index.toTensor().defined()) continue;
        const c10::ScalarType type = index.toTensor().scalar_type();
        if (type == at::kBool || type == at::kByte) return name != "aten::index";
      }
    }
    return true;
  }
  if (name == "aten::where") return arguments.size() == 3;
  if (name == "aten::repeat_interleave") return arguments.size() > 1 && arguments[1].isInt();
  if (name == "aten::one_hot") return arguments[1].toInt() >= 0;
  if (name == "aten::tensor_split") return !arguments[1].isTensor();
  if (name == "aten::narrow") return !arguments[2].isTensor();
  return !has(node, Trait::SizedByData);
}

bool form_may_differ(const jit::Node* node) {
  return std::string_view(node->kind().toQualString()) == "onnx_torch::group_query_attention";
}

std::optional<c10::OperatorHandle> overload_into(const jit::Node* node) {
  const jit::Operator* const known = node->maybeOperator();
  if (!known) return {};
  const jit::Operator& op = *known;
  if (!op.isC10Op() || op.schema().is_mutable()) return {};
  const c10::FunctionSchema& schema = op.schema();
  if (schema.returns().size() != 1 || !schema.returns()[0].type()->isSubtypeOf(*c10::TensorType::get())) return {};
  for (const auto& other : jit::getAllOperatorsFor(c10::Symbol::fromQualString(schema.name()))) {
    const c10::FunctionSchema& found = other->schema();
    if (!other->isC10Op() || found.arguments().size() != schema.arguments().size() + 1) continue;
    const c10::Argument& out = found.arguments().back();
    if (!out.is_out()) continue;
    bool is_same = true;
    for (size_t i = 0; is_same && i < schema.arguments().size(); ++i) {
      is_same = *schema.arguments()[i].type() == *found.arguments()[i].type() &&
                schema.arguments()[i].name() == found.arguments()[i].name();
    }
    if (!is_same) continue;
    const auto handle = c10::Dispatcher::singleton().findSchema({found.name(), found.overload_name()});
    if (handle && handle->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return handle;
  }
  return {};
}

}  // namespace onnxtorch
