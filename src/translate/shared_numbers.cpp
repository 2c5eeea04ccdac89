// One value for all numbers that are the same in every trial, so that the arithmetic of sizes that gives a size again
// falls away.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "graph/operator_traits.h"
#include "graph/writes.h"
#include "translate/facts.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

bool is_int(const jit::Value* v) { return v->type()->kind() == c10::TypeKind::IntType; }
// Tells whether a value is one bool, or several.
bool is_bool(const jit::Value* v) {
  return v->type()->kind() == c10::TypeKind::BoolType || v->type()->isSubtypeOf(*c10::ListType::ofBools());
}
bool is_list_of_ints(const jit::Value* v) { return v->type()->isSubtypeOf(*c10::ListType::ofInts()); }

// Tells whether a number is this size in all the trials that it has come through.
bool is_size(const Facts::Numbers& number, const Facts::Sizes& size) {
  return std::ranges::equal(number, size, [](const auto& trial, int64_t other) { return !trial || trial == other; });
}

bool are_alike(const Facts::Numbers& trials) {
  return std::ranges::all_of(trials, [&](const auto& trial) { return !trial || trial == trials[0]; });
}

// Tells whether a node joins or takes apart lists, and computes no number of them.
bool only_lists(const jit::Node* node) {
  return has(node, Trait::ReadsSizes) || (node->kind() == c10::aten::add && is_list_of_ints(node->output()));
}

}  // namespace

std::optional<Facts::Numbers> Facts::trial_numbers(const jit::Value* v) const {
  const auto open = open_.find(v);
  if (open == open_.end() || by_chance_.contains(v) || !open->second[0]->isInt()) return {};
  Numbers numbers;
  for (const auto& trial : open->second) numbers.push_back(trial ? std::optional(trial->toInt()) : std::nullopt);
  return numbers;
}

// Finds the open size of an input that a number is, and gives its index.
std::optional<size_t> Facts::open_size(const Numbers& trials) const {
  if (!all_turn_) return {};
  const auto found =
      std::ranges::find_if(open_sizes_, [&](const OpenSize& size) { return is_size(trials, size.trials); });
  return found == open_sizes_.end() ? std::nullopt : std::optional(found - open_sizes_.begin());
}

// Gives the size of an input that a number is, read where the graph begins.
jit::Value* Facts::input_size(const Numbers& trials, jit::Graph& graph) {
  const auto which = open_size(trials);
  if (!which) return nullptr;
  OpenSize* const found = &open_sizes_[*which];
  if (!found->number) {
    const jit::WithInsertPoint at(*graph.nodes().begin());
    jit::Value* const sizes = graph.insert(c10::aten::size, {found->input});
    found->number = graph.insert(c10::aten::__getitem__, {sizes, found->dim});
    for (jit::Value* made : {sizes, found->number}) learn(made->node());
  }
  return found->number;
}

jit::Value* Facts::shared_list(jit::Value* list) {
  const auto open = open_.find(list);
  const auto count = length(list);
  if (open == open_.end() || by_chance_.contains(list) || !count || *count == 0) return list;
  jit::Graph& graph = *list->owningGraph();
  const bool may_be_alike = only_lists(list->node());
  std::vector<jit::Value*> items;
  for (size_t i = 0; i < *count; ++i) {
    Numbers trials;
    for (const auto& trial : open->second)
      trials.push_back(trial ? std::optional(trial->toListRef()[i].toInt()) : std::nullopt);
    const bool alike = are_alike(trials);
    if (alike && !may_be_alike) return list;
    jit::Value* const item = alike ? graph.insertConstant(*trials[0]) : input_size(trials, graph);
    if (!item) return list;
    items.push_back(item);
  }
  jit::Node* const made = graph.insertNode(graph.createList(c10::IntType::get(), items));
  learn(made);
  return made->output();
}

std::optional<int64_t> Facts::known_int(const jit::Value* v) const {
  const auto known = value(v);
  return known && known->isInt() ? std::optional(known->toInt()) : std::nullopt;
}

// Gives the item that was read before, where a list that nobody writes to, or a slice of it, is read once more. An item
// that is unknown may lie behind the slice's end.
jit::Value* Facts::shared_item(jit::Value* item) {
  jit::Node* const node = item->node();
  if (node->kind() != c10::aten::__getitem__ || (!open_.contains(item) && !value(item))) return item;
  jit::Value* list = node->input(0);
  auto index = known_int(node->input(1));
  while (index && *index >= 0 && list->node()->kind() == c10::aten::slice && !is_written(list)) {
    const jit::Node* const slice = list->node();
    const auto start = slice->input(1)->mustBeNone() ? 0 : known_int(slice->input(1));
    if (start.value_or(-1) < 0 || known_int(slice->input(3)) != 1) break;
    *index += *start;
    list = slice->input(0);
  }
  if (!index || is_written(list)) return item;
  for (const jit::Use& use : list->uses()) {
    const bool is_same = use.user->kind() == c10::aten::__getitem__ && use.offset == 0 && use.user != node;
    if (is_same && known_int(use.user->input(1)) == index && node->isDominatedBy(use.user)) return use.user->output();
  }
  if (list == node->input(0)) return item;
  jit::Value* const read = item->owningGraph()->insert(c10::aten::__getitem__, {list, *index});
  learn(read->node());
  return read;
}

// Gives the value that stands for all numbers or lists that are the same. A size that is read from one dimension stays
// as it is, since passes look for that.
jit::Value* Facts::shared(jit::Value* v, std::span<jit::Value* const> inputs) {
  if (v->node()->kind() == c10::aten::size && is_int(v)) return v;
  if (std::ranges::any_of(inputs, [&](const jit::Value* input) { return is_bool(input) && !value(input); })) return v;
  if (is_list_of_ints(v)) return v->node()->kind() == c10::prim::ListConstruct ? v : shared_list(v);
  const auto trials = is_int(v) ? trial_numbers(v) : std::nullopt;
  jit::Value* const same = trials ? input_size(*trials, *v->owningGraph()) : nullptr;
  return same ? same : shared_item(v);
}

std::optional<bool> Facts::comparison(c10::Symbol kind, const jit::Value* a, const jit::Value* b) const {
  if (!is_int(a) || !is_int(b)) return {};
  const bool holds_of_same = kind == c10::aten::eq || kind == c10::aten::le || kind == c10::aten::ge;
  const bool holds_of_larger = kind == c10::aten::ne || kind == c10::aten::gt || kind == c10::aten::ge;
  const bool holds_of_smaller = kind == c10::aten::ne || kind == c10::aten::lt || kind == c10::aten::le;
  if (!holds_of_same && !holds_of_larger && !holds_of_smaller) return {};
  if (a == b) return holds_of_same;
  // The least that a size of an input may be is that of its trials: a run with an empty tensor is translated anew, and
  // has a trial of it.
  const auto least = [&](const jit::Value* v) -> std::optional<int64_t> {
    const auto trials = trial_numbers(v);
    const auto size = trials ? open_size(*trials) : std::nullopt;
    return size ? std::optional(std::ranges::min(open_sizes_[*size].trials)) : std::nullopt;
  };
  const auto is_at_least = [&](const jit::Value* v, int64_t margin, const jit::Value* number) {
    const auto size = least(v);
    const auto known = size ? value(number) : std::nullopt;
    return known && known->isInt() && *size - margin >= known->toInt();
  };
  const bool may_be_least = kind == c10::aten::ge || kind == c10::aten::lt;        // a size compared with a number
  const bool may_be_least_after = kind == c10::aten::le || kind == c10::aten::gt;  // a number compared with a size
  if (is_at_least(a, may_be_least ? 0 : 1, b)) return holds_of_larger;
  if (is_at_least(b, may_be_least_after ? 0 : 1, a)) return holds_of_smaller;
  return {};
}

}  // namespace onnxtorch
