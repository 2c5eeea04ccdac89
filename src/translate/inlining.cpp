#include "translate/inlining.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "graph/graph_location.h"
#include "graph/known_type.h"
#include "graph/node_operation.h"
#include "graph/walk.h"
#include "graph/writes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

constexpr int64_t kMostUnrolled = 64;  // the most iterations of a loop that is unrolled
constexpr int64_t kMostNodes = 4096;   // the most nodes that it may become

int64_t node_count(const jit::Block& block) {
  int64_t count = 0;
  for (const jit::Node* node : block.nodes()) {
    ++count;
    for (const jit::Block* inner : node->blocks()) count += node_count(*inner);
  }
  return count;
}

bool is_list(const jit::Value* value) { return value->type()->kind() == c10::TypeKind::ListType; }

// Tells whether the host computes with values of a type: a number, or a list of numbers.
bool is_number_or_numbers(const c10::Type& type) {
  using Kind = c10::TypeKind;
  const Kind kind = type.kind();
  return kind == Kind::IntType || kind == Kind::FloatType || kind == Kind::BoolType ||
         (kind == Kind::ListType && is_number_or_numbers(*type.expectRef<c10::ListType>().getElementType()));
}

// Tells whether a node gives tensors or lists of tensors alone. Lists of what may be a tensor or nothing have no facts.
bool gives_tensors(const jit::Node& node) {
  return std::ranges::all_of(node.outputs(), [](const jit::Value* output) {
    return is_tensor(output) || *output->type() == *c10::ListType::ofTensors();
  });
}

class Inlining {
 public:
  Inlining(jit::Graph& graph, const Script& script, at::ArrayRef<jit::Value*> arguments, Facts& facts,
           KeptScripts keeps)
      : graph_(graph), facts_(facts), writes_(script.writes()), keeps_(keeps) {
    map(script.graph()->inputs().slice(0, arguments.size()), arguments);
  }

  // Inserts a block's nodes up to where the script raises an error for certain, as what follows may rely on what it has
  // asserted.
  void insert(jit::Block& block) {
    for (jit::Node* node : block.nodes()) {
      if (raises_) return;
      if (!decide(node) && !unroll(node) && !follow(node) && !find_known(node) && !branch(node)) copy(node);
    }
  }

  // Gives the graph's values that stand for these values of the script.
  std::vector<jit::Value*> results(at::ArrayRef<jit::Value*> values) {
    std::vector<jit::Value*> found;
    for (const jit::Value* value : values) {
      place(value);
      const auto inserted = values_.find(value);
      found.push_back(inserted == values_.end() ? graph_.insertNode(graph_.createUninitialized(value->type()))->output()
                                                : inserted->second);
    }
    return found;
  }

 private:
  void map(at::ArrayRef<jit::Value*> from, at::ArrayRef<jit::Value*> to) {
    for (size_t i = 0; i < from.size(); ++i) values_[from[i]] = to[i];
  }

  // Takes the branch that is taken for certain.
  bool decide(jit::Node* node) {
    if (node->kind() != c10::prim::If) return false;
    const auto decided = jit::constant_as<bool>(values_.at(node->input()));
    if (!decided) return false;
    jit::Block& taken = *node->blocks()[*decided ? 0 : 1];
    insert(taken);
    map(node->outputs(), results(taken.outputs()));
    return true;
  }

  // Unrolls a loop of which it is known that it goes round a few times.
  bool unroll(jit::Node* node) {
    constexpr size_t kFirst = 2;  // the first carried input, after the number of iterations and the condition
    if (node->kind() != c10::prim::Loop) return false;
    jit::Block& body = *node->blocks()[0];
    const auto count = facts_.value(values_.at(node->input(0)));
    const bool always = jit::constant_as<bool>(values_.at(node->input(1))).value_or(false) &&
                        jit::constant_as<bool>(body.outputs()[0]).value_or(false);
    if (!always || !count || count->toInt() > std::min(kMostUnrolled, kMostNodes / node_count(body))) return false;
    std::vector<jit::Value*> carried = results(node->inputs().slice(kFirst));
    for (int64_t i = 0; i < count->toInt() && !raises_; ++i) {
      values_[body.inputs()[0]] = graph_.insertConstant(i);
      map(body.inputs().slice(1), carried);
      insert(body);
      carried = results(body.outputs().slice(1));
    }
    map(node->outputs(), carried);
    return true;
  }

  // Tells whether the script changes a list, but lets nothing else stand for it.
  bool is_followed(const jit::Value* list) const { return !writes_ && is_list(list) && is_written(list); }

  // Follows a list that a script makes and changes by its items: as long as these are known, the graph has no list that
  // changes.
  bool follow(jit::Node* node) {
    if (node->kind() == c10::prim::ListConstruct && is_followed(node->output())) {
      lists_[node->output()] = results(node->inputs());
      values_.erase(node->output());
      return true;
    }
    const auto found = node->inputs().empty() ? lists_.end() : lists_.find(node->input(0));
    if (found == lists_.end()) return false;
    std::vector<jit::Value*>& items = found->second;
    if (node->kind() == c10::aten::append) {
      items.push_back(values_.at(node->input(1)));
      values_.erase(node->input(0));
      return true;
    }
    if (node->kind() == c10::aten::len) {
      values_[node->output()] = graph_.insertConstant(static_cast<int64_t>(items.size()));
      return true;
    }
    const bool reads = node->kind() == c10::aten::__getitem__;
    if (!reads && node->kind() != c10::aten::_set_item) return false;
    const auto index = place_in(items.size(), values_.at(node->input(1)));
    if (!index) return false;
    if (reads) {
      values_[node->output()] = items[*index];
    } else {
      items[*index] = values_.at(node->input(2));
      values_.erase(node->input(0));
    }
    return true;
  }

  // Gives the place among so many items that an index means, where it is known.
  std::optional<size_t> place_in(size_t count, const jit::Value* index) const {
    const auto known = facts_.value(index);
    if (!known) return {};
    const int64_t place = known->toInt() < 0 ? known->toInt() + static_cast<int64_t>(count) : known->toInt();
    const bool exists = place >= 0 && place < static_cast<int64_t>(count);
    return exists ? std::optional(static_cast<size_t>(place)) : std::nullopt;
  }

  // Makes a list of the items that a followed one has now.
  jit::Node* make_list(const jit::Value* list) {
    const auto element = list->type()->expectRef<c10::ListType>().getElementType();
    return graph_.insertNode(graph_.createList(element, lists_.at(list)));
  }

  // Puts a list that is followed into the graph, as it is now.
  void place(const jit::Value* list) {
    if (!lists_.contains(list) || values_.contains(list)) return;
    jit::Node* const made = make_list(list);
    values_[list] = made->output();
    if (is_number_or_numbers(*list->type())) {
      facts_.learn(made);
    } else if (gives_tensors(*made)) {
      not_learned_.insert(made);
    }
  }

  // Puts the lists that a node takes, or one inside it, into the graph, and no longer follows those that it changes.
  void place_inputs(const jit::Node* node) {
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const jit::Value* const input = node->input(i);
      const bool changes = i == 0 && (node->kind() == c10::aten::append || node->kind() == c10::aten::_set_item);
      if (changes && lists_.contains(input)) {
        values_[input] = make_list(input)->output();
        lists_.erase(input);
      } else {
        place(input);
      }
    }
    for (const jit::Block* inner : node->blocks()) {
      for (const jit::Node* nested : inner->nodes()) place_inputs(nested);
    }
  }

  // Lets a constant stand for a node's result that is known, and a value for a result that is the same.
  bool find_known(jit::Node* node) {
    place_inputs(node);
    if (const auto known = number(node)) {
      values_[node->output()] = graph_.insertConstant(*known);
      return true;
    }
    // A tensor that is given for an optional parameter is not None.
    if (node->kind() != c10::prim::unchecked_cast || !values_.at(node->input())->mustNotBeNone()) return false;
    map(node->outputs(), values_.at(node->input()));
    return true;
  }

  // Inserts both branches, and leaves it to a run which one is taken.
  bool branch(jit::Node* node) {
    if (node->kind() != c10::prim::If) return false;
    jit::Node* const made = graph_.insertNode(graph_.create(c10::prim::If, {values_.at(node->input())}, 0));
    std::vector<std::vector<jit::Value*>> found;
    for (jit::Block* block : node->blocks()) {
      const jit::WithInsertPoint at(made->addBlock());
      insert(*block);
      found.push_back(results(block->outputs()));
      raises_ = false;
    }
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      if (found[0][i] == found[1][i]) {
        values_[node->output(i)] = found[0][i];
        continue;
      }
      for (size_t which : {0, 1}) made->blocks()[which]->registerOutput(found[which][i]);
      values_[node->output(i)] = made->addOutput()->setType(node->output(i)->type());
    }
    return true;
  }

  void copy(jit::Node* node) {
    raises_ = node->kind() == c10::prim::RaiseException;
    jit::Node* const same = graph_.insertNode(graph_.createClone(node, [&](jit::Value* v) { return values_.at(v); }));
    const bool learns = is_fact(same);
    if (learns) {
      for (jit::Value* input : same->inputs()) learn_tensor(input);
      facts_.learn(same);
    } else if (!writes_ && gives_tensors(*same)) {
      not_learned_.insert(same);
    }
    for (jit::Block* cloned : same->blocks()) {
      for_each_node(cloned, [&](jit::Node* inner) { write_out(inner, facts_, keeps_); });
    }
    if (node->outputs().size() == 1 && is_followed(node->output())) {
      values_[node->output()] = same->output();
      take_items(node->output(), same->output());
    } else if (learns && !writes_) {
      values_[node->output()] = facts_.shared(same->output(), same->inputs());
    } else {
      map(node->outputs(), write_out(same, facts_, keeps_));
    }
  }

  // Follows a list that a node has made, where its length is known. Else the list changes, and nothing is known of it.
  void take_items(const jit::Value* list, jit::Value* made) {
    const auto length = is_number_or_numbers(*list->type()) ? facts_.length(made) : std::nullopt;
    if (!length) {
      facts_.forget(made);
      return;
    }
    std::vector<jit::Value*> items;
    for (size_t i = 0; i < *length; ++i) {
      jit::Value* const item = graph_.insert(c10::aten::__getitem__, {made, static_cast<int64_t>(i)});
      facts_.learn(item->node());
      const auto known = facts_.value(item);
      items.push_back(known ? graph_.insertConstant(*known) : facts_.shared(item, item->node()->inputs()));
    }
    lists_[list] = std::move(items);
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

  // Tells whether a number or list follows from sizes, or numbers, for good. Strides may be others in a run, and a
  // script that writes may change a list.
  bool is_fact(const jit::Node* node) const {
    const c10::Symbol kind = node->kind();
    const bool reads_sizes = kind == c10::aten::size || kind == c10::aten::dim || kind == c10::aten::numel;
    const bool computes = kind.is_aten() || kind == c10::prim::min || kind == c10::prim::max;
    if (!computes && kind != c10::prim::ListConstruct) return false;
    if (!reads_sizes && std::ranges::any_of(node->inputs(), is_tensor)) return false;
    if (node->outputs().size() != 1 || !is_number_or_numbers(*node->output()->type())) return false;
    return !writes_ || (!is_list(node->output()) && std::ranges::none_of(node->inputs(), is_list));
  }

  // Gives what a comparison, an integer or the dtype of a tensor comes to where all that it reads is known.
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
    const auto results = facts_.evaluate(inputs, [node](jit::Stack& stack) { operation_of(node)(stack); });
    return results ? std::optional(results->back()) : std::nullopt;
  }

  // Gives the result of `x is None`, or of `is not`, for a value that cannot be None.
  std::optional<IValue> is_none(const jit::Node* node) const {
    const bool is = node->kind() == c10::aten::__is__;
    if (!is && node->kind() != c10::aten::__isnot__) return {};
    const bool present =
        values_.at(node->input(0))->mustNotBeNone() && jit::toIValue(values_.at(node->input(1))) == IValue();
    return present ? std::optional<IValue>(!is) : std::nullopt;
  }

  jit::Graph& graph_;
  Facts& facts_;
  const bool writes_;
  const KeptScripts keeps_;
  bool raises_ = false;
  std::unordered_map<const jit::Value*, std::vector<jit::Value*>> lists_;  // the script's lists, as items in the graph
  std::unordered_set<jit::Node*> not_learned_;                 // made by the script; few of their sizes are asked for
  std::unordered_map<const jit::Value*, jit::Value*> values_;  // the script's values, in the graph
};

}  // namespace

std::vector<jit::Value*> insert_script(jit::Graph& graph, const Script& script, at::ArrayRef<jit::Value*> arguments,
                                       Facts& facts, KeptScripts keeps) {
  jit::Block& body = *script.graph()->block();
  Inlining inlining(graph, script, arguments, facts, keeps);
  inlining.insert(body);
  jit::Value* const result = inlining.results(body.outputs()).at(0);
  if (result->type()->kind() != c10::TypeKind::TupleType) return {result};
  if (result->node()->kind() == c10::prim::TupleConstruct) {
    const std::vector<jit::Value*> items = result->node()->inputs().vec();
    if (!result->hasUses()) result->node()->destroy();
    return items;
  }
  return graph.insertNode(graph.createTupleUnpack(result))->outputs().vec();
}

std::vector<jit::Value*> write_out(jit::Node* node, Facts& facts, KeptScripts keeps) {
  const Script* const script = kept_script(node->kind());
  if (!script || (keeps && keeps(node->kind()))) return node->outputs().vec();
  const jit::WithInsertPoint at(node);
  jit::Node* const before = node->prev();
  const auto results = insert_script(*node->owningGraph(), *script, node->inputs(), facts, keeps);
  for (jit::Node* made = before->next(); made != node; made = made->next()) {
    stamp(made, node->sourceRange());
    if (script->writes()) continue;
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
