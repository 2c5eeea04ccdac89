#include "translate/inlining.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "graph/graph_location.h"
#include "graph/known_type.h"
#include "graph/walk.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

bool is_list(const jit::Value* value) { return value->type()->kind() == c10::TypeKind::ListType; }

// Of what the host computes with.
bool is_number_or_numbers(const c10::Type& type) {
  using Kind = c10::TypeKind;
  const Kind kind = type.kind();
  return kind == Kind::IntType || kind == Kind::FloatType || kind == Kind::BoolType ||
         (kind == Kind::ListType && is_number_or_numbers(*type.expectRef<c10::ListType>().getElementType()));
}

// Lists of what may be a tensor or nothing have no facts.
bool gives_tensors(const jit::Node& node) {
  return std::ranges::all_of(node.outputs(), [](const jit::Value* output) {
    return is_tensor(output) || *output->type() == *c10::ListType::ofTensors();
  });
}

class Inlining {
 public:
  Inlining(jit::Graph& graph, const Script& script, at::ArrayRef<jit::Value*> arguments, Facts& facts, bool keeps)
      : graph_(graph), facts_(facts), writes_(script.writes), keeps_(keeps) {
    const auto parameters = script.graph->inputs();
    for (size_t i = 0; i < arguments.size(); ++i) values_[parameters[i]] = arguments[i];
  }

  // Up to where the script raises an error for certain, as what follows may rely on what it has asserted.
  void insert(jit::Block& block) {
    for (jit::Node* node : block.nodes()) {
      if (raises_) return;
      if (node->kind() == c10::prim::If) {
        if (const auto decided = jit::constant_as<bool>(values_.at(node->input()))) {
          jit::Block& taken = *node->blocks()[*decided ? 0 : 1];
          insert(taken);
          map(node->outputs(), results(taken));
          continue;
        }
      }
      raises_ = node->kind() == c10::prim::RaiseException;
      if (const auto known = number(node)) {
        values_[node->output()] = graph_.insertConstant(*known);
        continue;
      }
      // A tensor given for an optional parameter is one.
      if (node->kind() == c10::prim::unchecked_cast && values_.at(node->input())->mustNotBeNone()) {
        map(node->outputs(), values_.at(node->input()));
        continue;
      }
      jit::Node* const same = graph_.insertNode(graph_.createClone(node, [&](jit::Value* v) { return values_.at(v); }));
      const bool learns = is_fact(same);
      if (learns) {
        for (jit::Value* input : same->inputs()) learn_tensor(input);
        facts_.learn(same);
      } else if (!writes_ && gives_tensors(*same)) {
        not_learned_.insert(same);
      }
      for (jit::Block* cloned : same->blocks()) {
        if (!keeps_) for_each_node(cloned, [&](jit::Node* inner) { write_out(inner, facts_); });
      }
      if (learns && !writes_) {
        values_[node->output()] = facts_.shared(same->output(), same->inputs());
      } else {
        map(node->outputs(), keeps_ ? same->outputs().vec() : write_out(same, facts_));
      }
    }
  }

  std::vector<jit::Value*> results(const jit::Block& block) const {
    std::vector<jit::Value*> found;
    for (const jit::Value* output : block.outputs()) {
      const auto inserted = values_.find(output);
      found.push_back(inserted == values_.end()
                          ? graph_.insertNode(graph_.createUninitialized(output->type()))->output()
                          : inserted->second);
    }
    return found;
  }

 private:
  void map(at::ArrayRef<jit::Value*> from, at::ArrayRef<jit::Value*> to) {
    for (size_t i = 0; i < from.size(); ++i) values_[from[i]] = to[i];
  }

  // Learns of a tensor whose sizes are asked for, and of those that the script has made it of.
  void learn_tensor(jit::Value* value) {
    const auto found = not_learned_.find(value->node());
    if (found == not_learned_.end()) return;
    jit::Node* const node = *found;
    not_learned_.erase(found);
    for (jit::Value* input : node->inputs()) learn_tensor(input);
    facts_.learn(node);
  }

  // Whether a number or list follows from sizes, or numbers, for good. Strides may be others in a run, and a script
  // that writes may change a list.
  bool is_fact(const jit::Node* node) const {
    const bool reads_sizes = node->kind() == c10::aten::size || node->kind() == c10::aten::dim;
    const bool computes = node->kind().is_aten() || node->kind() == c10::prim::min || node->kind() == c10::prim::max;
    if (!computes && node->kind() != c10::prim::ListConstruct) return false;
    if (!reads_sizes && std::ranges::any_of(node->inputs(), is_tensor)) return false;
    if (node->outputs().size() != 1 || !is_number_or_numbers(*node->output()->type())) return false;
    return !writes_ || (!is_list(node->output()) && std::ranges::none_of(node->inputs(), is_list));
  }

  // What a comparison, an integer or the dtype of a tensor comes to where all that it reads is known.
  std::optional<IValue> number(const jit::Node* node) const {
    if (node->kind() == c10::prim::dtype) {
      const auto type = type_of(values_.at(node->input()));
      return type ? std::optional(IValue(*type)) : std::nullopt;
    }
    if (node->outputs().size() != 1) return {};
    const c10::TypeKind kind = node->output()->type()->kind();
    if (kind != c10::TypeKind::BoolType && kind != c10::TypeKind::IntType) return {};
    if (const auto presence = is_none(node)) return presence;
    if (!is_fact(node)) return {};
    std::vector<jit::Value*> inputs;
    for (const jit::Value* input : node->inputs()) inputs.push_back(values_.at(input));
    if (const auto known = inputs.size() == 2 ? facts_.comparison(node->kind(), inputs[0], inputs[1]) : std::nullopt)
      return known;
    const auto results = facts_.evaluate(inputs, [node](jit::Stack& stack) { node->getOperation()(stack); });
    return results ? std::optional(results->back()) : std::nullopt;
  }

  // `x is None`, or `is not`, of a value that cannot be.
  std::optional<IValue> is_none(const jit::Node* node) const {
    const bool is = node->kind() == c10::aten::__is__;
    if (!is && node->kind() != c10::aten::__isnot__) return {};
    const bool present =
        values_.at(node->input(0))->mustNotBeNone() && jit::toIValue(values_.at(node->input(1))) == IValue();
    return present ? std::optional<IValue>(!is) : std::nullopt;
  }

  jit::Graph& graph_;
  Facts& facts_;
  const bool writes_, keeps_;
  bool raises_ = false;
  std::unordered_set<jit::Node*> not_learned_;  // that the script has made; few of their sizes are asked for
  std::unordered_map<const jit::Value*, jit::Value*> values_;  // of the script, in the graph
};

}  // namespace

std::vector<jit::Value*> insert_script(jit::Graph& graph, const Script& script, at::ArrayRef<jit::Value*> arguments,
                                       Facts& facts, bool keeps) {
  jit::Block& body = *script.graph->block();
  Inlining inlining(graph, script, arguments, facts, keeps);
  inlining.insert(body);
  jit::Value* const result = inlining.results(body).at(0);
  if (result->type()->kind() != c10::TypeKind::TupleType) return {result};
  return graph.insertNode(graph.createTupleUnpack(result))->outputs().vec();
}

std::vector<jit::Value*> write_out(jit::Node* node, Facts& facts) {
  const Script* const script = kept_script(node->kind());
  if (!script) return node->outputs().vec();
  const jit::WithInsertPoint at(node);
  jit::Node* const before = node->prev();
  const auto results = insert_script(*node->owningGraph(), *script, node->inputs(), facts, /*keeps=*/false);
  for (jit::Node* made = before->next(); made != node; made = made->next()) {
    stamp(made, node->sourceRange());
    if (script->writes) continue;
    facts.learn(made);
    for (jit::Value* result : made->outputs()) facts.stamp(result);
  }
  for (size_t i = 0; i < results.size(); ++i) {
    if (*results[i]->type() == *c10::TensorType::get()) results[i]->setType(node->output(i)->type());
    facts.move(node->output(i), results[i]);
    node->output(i)->replaceAllUsesWith(results[i]);
  }
  node->destroy();
  return results;
}

}  // namespace onnxtorch
