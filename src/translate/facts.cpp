#include "translate/facts.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "base/run_guard.h"
#include "graph/node_operation.h"
#include "graph/operator_traits.h"
#include "graph/writes.h"
#include "kernels/standard/meta_kernels.h"
#include "translate/scripts.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

constexpr int64_t kLargestKnown = 4096;  // the most elements of a tensor whose value is kept
constexpr double kMostBytes = 1 << 26;   // the most bytes of what one operator computes
constexpr double kMostIterations = 1e4;  // the most iterations of each loop of an operator
constexpr int64_t kManyIterations = 500;

// Tells whether a value is of a kind that is not looked into.
bool is_composite(const IValue& value) {
  if (value.isList()) return std::ranges::any_of(value.toListRef(), is_composite);
  return value.isTuple() || value.isGenericDict() || value.isObject();
}

bool is_small(const IValue& value) {
  if (value.isTensor()) return !value.toTensor().defined() || value.toTensor().numel() <= kLargestKnown;
  if (value.isList()) return std::ranges::all_of(value.toListRef(), is_small);
  return !is_composite(value) && !value.isDevice() && !value.isCapsule();
}

bool holds_floating_tensor(const IValue& value) {
  if (value.isList()) return std::ranges::any_of(value.toListRef(), holds_floating_tensor);
  return value.isTensor() && value.toTensor().defined() && value.toTensor().is_floating_point();
}

// Gives the value with each tensor on the meta device; nothing for kinds that hold no shapes.
std::optional<IValue> to_meta(const IValue& value) {
  if (value.isTensor()) {
    const at::Tensor& t = value.toTensor();
    if (!t.defined() || t.is_meta()) return value;
    return at::empty_strided(t.sizes(), t.strides(), t.options().device(at::kMeta));
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> metas;
    for (const at::Tensor& t : value.toTensorVector()) metas.push_back(to_meta(t)->toTensor());
    return metas;
  }
  if (value.isDevice()) return at::Device(at::kMeta);
  if (is_composite(value)) return {};
  return value;
}

bool is_tensors(const IValue& value) { return value.isTensor() || value.isTensorList(); }

bool is_on_meta(const IValue& value) {
  if (value.isTensor()) return value.toTensor().is_meta();
  if (value.isList()) return std::ranges::any_of(value.toListRef(), is_on_meta);
  return value.isDevice();  // a factory then makes its tensors on meta, and so none that is large
}

// Tells whether two values are the same, or have the same shape.
bool is_same(const IValue& a, const IValue& b) {
  if (a.isTensor() && b.isTensor()) {
    const at::Tensor &x = a.toTensor(), &y = b.toTensor();
    if (!x.defined() || !y.defined()) return x.defined() == y.defined();
    if (x.scalar_type() != y.scalar_type() || x.sizes() != y.sizes() || x.is_meta() != y.is_meta()) return false;
    return x.is_meta() || at::equal(x, y);
  }
  if (a.isList() && b.isList()) return std::ranges::equal(a.toListRef(), b.toListRef(), is_same);
  return a == b;
}

// Gives the first of the trials that there is.
const IValue& first_of(const Facts::Trials& trials) {
  return **std::ranges::find_if(trials, [](const auto& trial) { return trial.has_value(); });
}

// Tells whether a tensor is smaller in the second or third trial, where all open sizes are larger, than in the first,
// where they are 1.
bool shrinks(const Facts::Trials& trials) {
  const auto sizes = [&](size_t trial) {
    const bool has_sizes = trials[trial] && trials[trial]->isTensor() && trials[trial]->toTensor().defined();
    return has_sizes ? trials[trial]->toTensor().sizes() : at::IntArrayRef();
  };
  const auto shrinks_to = [&](size_t trial) {
    const at::IntArrayRef first = sizes(0), other = sizes(trial);
    return first.size() == other.size() && !std::ranges::equal(first, other, std::less_equal());
  };
  return shrinks_to(1) || shrinks_to(2);
}

bool is_always_empty(const Facts::Trials& trials) {
  return std::ranges::all_of(trials, [](const auto& trial) {
    return !trial || (trial->isTensor() && trial->toTensor().defined() && trial->toTensor().numel() == 0);
  });
}

struct Quietly {
  std::optional<jit::Stack> results;
  bool looped = false;  // a loop went round many times
};

Quietly run_quietly(const Facts::Run& run, jit::Stack stack) {
  const at::NoGradGuard no_grad;
  // These tensors are no concern of the modes that a caller in Python has set.
  const c10::impl::ExcludeDispatchKeyGuard no_modes(
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot}));
  const MemoryScope memory(kMostBytes);  // only little of it is kept
  const RunGuard loops({.max_iterations = kMostIterations}, nullptr);
  try {
    run(stack);
    return {std::move(stack), loops.iterations() > kManyIterations};
  } catch (const std::exception&) {
    return {};  // the model's own run will say what is wrong, if it gets there
  }
}

// Gives a function that runs a node, if there is one. The nodes that build and take apart lists have no operator behind
// them; those that build lists are run here.
std::optional<Facts::Run> runner(jit::Node* node) {
  if (node->kind() == c10::prim::ListConstruct) {
    const auto element = node->output()->type()->expectRef<c10::ListType>().getElementType();
    const size_t count = node->inputs().size();
    return [element, count](jit::Stack& stack) {
      c10::impl::GenericList list(element);
      for (auto& item : jit::last(stack, count)) list.push_back(item);
      jit::drop(stack, count);
      stack.emplace_back(std::move(list));
    };
  }
  if (!node->maybeOperator()) return {};
  return [operation = operation_of(node)](jit::Stack& stack) mutable { operation(stack); };
}

// Tells whether an operator is another library's. Such operators run only when the model does, unless they say what
// they do to shapes.
bool is_foreign(const jit::Node* node) {
  const auto& name = node->kind().ns().toQualString();
  for (const std::string_view own : {"namespaces::aten", "namespaces::prim", "namespaces::onnx_torch"}) {
    if (name == own) return false;
  }
  const auto* op = node->maybeOperator();
  if (!op) return true;
  const auto handle = c10::Dispatcher::singleton().findSchema(op->schema().operator_name());
  return !handle || !handle->hasKernelForDispatchKey(c10::DispatchKey::Meta);
}

// Tells whether a node's results, or its lists, are no facts: an empty list is there to be appended to, and others may
// be.
bool is_opaque(const jit::Node* node) {
  if (is_foreign(node)) return true;
  if (node->kind() == c10::prim::Constant || node->kind() == c10::prim::device || !node->blocks().empty()) return true;
  if (node->kind() == c10::prim::ListConstruct) return node->inputs().empty() || is_written(node->output());
  return node->maybeSchema() && node->schema().is_mutable();
}

bool is_slice(const jit::Node* node) {
  return node->kind() == c10::aten::slice && node->inputs().size() == 5;  // one of a list has four inputs
}

}  // namespace

// Gives the sizes that an open dimension is tried with. 1 is the size that is broadcast; the two after it are even and
// odd, and unlike those that models have. Of two dimensions, one is larger in one trial and the other in another one.
// The last two can be halved six times, with one image at least in one of them. A model may have a largest size below
// them; with the very last, three dimensions and a few thousand channels still make a number of bytes that can be
// counted.
Facts::Sizes Facts::trial_sizes(size_t dimension, bool is_first) {
  const auto number = static_cast<int64_t>(dimension);
  const int64_t turned = dimension <= kMostTurned ? 125 - 2 * number : 125 + 2 * number;
  return {1, 12 + 2 * number, turned, is_first ? 1 : 64 * (16 + number), 64 * (1536 + number)};
}

std::optional<IValue> Facts::value(const jit::Value* v) const {
  if (const auto found = values_.find(v); found != values_.end()) return found->second;
  return jit::toIValue(v);
}

std::optional<at::Tensor> Facts::meta(const jit::Value* v) const {
  const auto found = metas_.find(v);
  if (found == metas_.end() || !found->second.isTensor()) return {};
  return found->second.toTensor();
}

std::optional<c10::ScalarType> Facts::dtype(const jit::Value* v) const {
  const auto dtype_of = [](const IValue& value) {
    const bool known = value.isTensor() && value.toTensor().defined();
    return known ? std::optional(value.toTensor().scalar_type()) : std::nullopt;
  };
  if (const auto known = meta(v)) return dtype_of(*known);
  const auto found = open_.find(v);
  if (found == open_.end()) return {};
  const auto first = dtype_of(first_of(found->second));
  const auto is_alike = [&](const auto& trial) { return !trial || dtype_of(*trial) == first; };
  return std::ranges::all_of(found->second, is_alike) ? first : std::nullopt;
}

std::optional<c10::SymbolicShape> Facts::shape(const jit::Value* v) const {
  if (const auto known = meta(v))
    return known->defined() ? std::optional(c10::SymbolicShape(known->sizes())) : std::nullopt;
  const auto found = open_.find(v);
  if (found == open_.end()) return {};
  std::vector<at::IntArrayRef> trials;
  for (const auto& trial : found->second) {
    if (!trial) continue;
    if (!trial->isTensor() || !trial->toTensor().defined()) return {};
    trials.push_back(trial->toTensor().sizes());
  }
  std::vector<c10::ShapeSymbol> sizes;
  for (size_t i = 0; i < trials[0].size(); ++i) {
    const auto is_alike = [&](at::IntArrayRef trial) {
      return trial.size() > i && trial[i] == trials[0][i] && !by_chance_.contains(v);
    };
    sizes.push_back(std::ranges::all_of(trials, is_alike) ? c10::ShapeSymbol::fromStaticSize(trials[0][i])
                                                          : c10::ShapeSymbol::newSymbol());
  }
  const auto has_rank = [&](at::IntArrayRef trial) { return trial.size() == sizes.size(); };
  return std::ranges::all_of(trials, has_rank) ? std::optional(c10::SymbolicShape(sizes)) : std::nullopt;
}

void Facts::stamp(jit::Value* v) const {
  const auto sizes = shape(v);
  const auto elements = dtype(v);
  if ((!sizes && !elements) || v->type()->kind() != c10::TypeKind::TensorType) return;
  v->setType(c10::TensorType::create(elements, std::nullopt, sizes.value_or(c10::SymbolicShape()),
                                     c10::VaryingShape<c10::Stride>(), std::nullopt));
}

std::optional<size_t> Facts::length(const jit::Value* v) const {
  if (const auto known = value(v)) return known->isList() ? std::optional(known->toListRef().size()) : std::nullopt;
  const auto found = open_.find(v);
  if (found == open_.end() || !first_of(found->second).isList()) return {};
  const size_t length = first_of(found->second).toListRef().size();
  const auto is_alike = [&](const auto& trial) {
    return !trial || (trial->isList() && trial->toListRef().size() == length);
  };
  return std::ranges::all_of(found->second, is_alike) ? std::optional(length) : std::nullopt;
}

void Facts::move(const jit::Value* from, const jit::Value* to) {
  const auto move_in = [&](auto& known) {
    if (auto node = known.extract(from)) known.insert_or_assign(to, std::move(node.mapped()));
  };
  move_in(values_);
  move_in(metas_);
  move_in(open_);
  if (by_chance_.erase(from) > 0) by_chance_.insert(to);
}

bool Facts::knows(const jit::Value* v) const {
  return value(v) || metas_.contains(v) || (open_.contains(v) && !by_chance_.contains(v));
}

void Facts::forget(const jit::Value* v) {
  values_.erase(v);
  metas_.erase(v);
  open_.erase(v);
  by_chance_.erase(v);
}

void Facts::set_input_sizes(jit::Value* input, c10::ScalarType dtype, std::span<const Sizes> sizes) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    const bool is_open = std::ranges::adjacent_find(sizes[i], std::ranges::not_equal_to()) != sizes[i].end();
    if (!is_open) continue;
    open_sizes_.push_back({input, static_cast<int64_t>(i), sizes[i], nullptr});
    all_turn_ &= sizes[i][2] <= trial_sizes(0)[2];
  }
  set_sizes(input, dtype, sizes);
}

void Facts::set_sizes(const jit::Value* v, c10::ScalarType dtype, std::span<const Sizes> sizes) {
  std::vector<Trials> found(1);
  for (size_t trial = 0; trial < holds_.size(); ++trial) {
    const auto make = [&](jit::Stack& stack) {
      std::vector<int64_t> shape;
      for (const Sizes& size : sizes) shape.push_back(size[trial]);
      stack.emplace_back(at::empty(shape, at::device(at::kMeta).dtype(dtype)));
    };
    const auto made = run_quietly(make, {}).results;  // none where there are too many bytes to count
    if (!made && is_needed(trial)) return;
    found[0].push_back(made ? std::optional(made->front()) : std::nullopt);
  }
  keep({&v, 1}, std::move(found), {.reads_sizes = true}, /*by_chance=*/false);
}

void Facts::set_value(const jit::Value* v, const IValue& value) {
  if (is_small(value)) values_[v] = value;
  if (auto meta = to_meta(value)) metas_[v] = *std::move(meta);
}

std::optional<IValue> Facts::take_value(const jit::Value* v) {
  auto node = values_.extract(v);
  return node ? std::optional(std::move(node.mapped())) : std::nullopt;
}

std::optional<IValue> Facts::meta_or_value(const jit::Value* v) const {
  if (const auto found = metas_.find(v); found != metas_.end()) return found->second;
  const auto known = value(v);
  return known ? to_meta(*known) : std::nullopt;
}

std::optional<jit::Stack> Facts::evaluate(std::span<jit::Value* const> inputs, const Run& run) const {
  jit::Stack known;
  for (const jit::Value* input : inputs) {
    auto v = value(input);
    if (!v) return {};
    known.push_back(*std::move(v));
  }
  auto results = run_quietly(run, std::move(known)).results;
  if (results && !std::ranges::all_of(*results, is_small)) results.reset();
  const bool changing = std::ranges::any_of(inputs, [this](const jit::Value* v) { return changing_.contains(v); });
  if (results && changing && std::ranges::any_of(*results, holds_floating_tensor)) results.reset();
  return results;
}

void Facts::learn(std::span<jit::Value* const> inputs, std::span<jit::Value* const> outputs, Kind kind,
                  const Run& run) {
  if (std::ranges::all_of(outputs, [this](const jit::Value* output) { return knows(output); })) return;
  if (kind.deterministic) {
    if (const auto results = evaluate(inputs, run); results && results->size() == outputs.size()) {
      for (size_t i = 0; i < outputs.size(); ++i) set_value(outputs[i], (*results)[i]);
      return;
    }
  }
  if (std::ranges::any_of(inputs, [&](const jit::Value* v) { return open_.contains(v); })) {
    learn_by_trials(inputs, outputs, kind, run);
    return;
  }
  jit::Stack metas;
  for (const jit::Value* input : inputs) {
    if (auto m = meta_or_value(input)) metas.push_back(*std::move(m));
  }
  if (metas.size() != inputs.size()) return;
  const MetaKernelsInCpp in_cpp;
  const auto results = run_quietly(run, std::move(metas)).results;
  if (!results || results->size() != outputs.size()) return;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const IValue& result = (*results)[i];
    if (is_tensors(result)) {
      if (auto meta = to_meta(result)) metas_[outputs[i]] = *std::move(meta);
    } else if (is_small(result) && !result.isTuple()) {
      values_[outputs[i]] = result;  // sizes and what follows from them
    }
  }
}

// Gives the inputs of a trial: for real where all is known in the trial, else on the meta device.
std::optional<jit::Stack> Facts::inputs_of_trial(std::span<jit::Value* const> inputs, size_t trial) const {
  jit::Stack stack;
  for (const jit::Value* input : inputs) {
    std::optional<IValue> known = value(input);
    if (const auto open = open_.find(input); open != open_.end()) {
      known = open->second[trial];
    } else if (!known) {
      known = meta_or_value(input);
    }
    if (!known) return {};
    stack.push_back(*known);
  }
  if (std::ranges::none_of(stack, is_on_meta)) return stack;
  for (IValue& input : stack) {
    auto meta = to_meta(input);
    if (!meta) return {};
    input = *std::move(meta);
  }
  return stack;
}

void Facts::learn_by_trials(std::span<jit::Value* const> inputs, std::span<jit::Value* const> outputs, Kind kind,
                            const Run& run) {
  std::vector<Trials> found(outputs.size(), Trials(holds_.size()));
  bool takes_long = false;
  bool fails = false;
  for (size_t trial = 0; trial < holds_.size(); ++trial) {
    if (fails && trial < kNeededTrials) continue;
    auto stack = takes_long && !is_needed(trial) ? std::nullopt : inputs_of_trial(inputs, trial);
    const MetaKernelsInCpp in_cpp;
    const auto [results, looped] = stack ? run_quietly(run, *std::move(stack)) : Quietly();
    takes_long |= looped;
    if (!results) {
      fails |= is_needed(trial);
      if (fails && trial >= kNeededTrials) return;
      continue;
    }
    if (results->size() != outputs.size()) return;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const IValue& result = (*results)[i];
      const auto kept = is_small(result) ? std::optional(result) : to_meta(result);
      if (!kept || kept->isTuple()) return;
      found[i][trial] = *kept;
    }
  }
  const bool by_chance = std::ranges::any_of(inputs, [this](const jit::Value* v) { return by_chance_.contains(v); });
  keep(outputs, std::move(found), kind, by_chance || fails || kind.may_shrink);
}

void Facts::keep(std::span<const jit::Value* const> outputs, std::vector<Trials> found, Kind kind, bool by_chance) {
  std::vector<bool> still_holds = holds_;
  for (size_t trial = 0; trial < holds_.size(); ++trial) still_holds[trial] = holds_[trial] && found[0][trial];
  if (std::ranges::none_of(still_holds, std::identity())) return;  // one trial has to have all facts
  holds_ = std::move(still_holds);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const IValue& first = first_of(found[i]);
    if (knows(outputs[i])) continue;
    forget(outputs[i]);
    by_chance |= kind.is_cut && is_always_empty(found[i]);
    const bool alike =
        std::ranges::all_of(found[i], [&](const auto& other) { return !other || is_same(first, *other); });
    if (alike && is_tensors(first) && !by_chance) {
      metas_[outputs[i]] = *to_meta(first);
    } else if (alike && (by_chance ? kind.reads_rank : kind.reads_sizes)) {
      values_[outputs[i]] = first;
    } else {
      if (alike || by_chance || shrinks(found[i])) by_chance_.insert(outputs[i]);
      open_[outputs[i]] = std::move(found[i]);
    }
  }
}

SizeRange Facts::range(const Sizes& sizes) const {
  if (sizes.back() == 0) return {0, 0};  // the sizes of a run with an empty tensor hold for that run alone
  SizeRange range{.least = 2, .largest = 0};
  for (size_t trial = 0; trial < sizes.size(); ++trial) {
    if (!holds_[trial]) continue;
    range.largest = std::max(range.largest, sizes[trial]);
    if (sizes[trial] == 1) range.least = 1;
  }
  return range;
}

void Facts::learn(jit::Node* node) {
  if (is_opaque(node) || node->outputs().empty()) return;
  const auto run = runner(node);
  if (!run) return;
  const std::vector<jit::Value*> inputs(node->inputs().begin(), node->inputs().end());
  const std::vector<jit::Value*> outputs(node->outputs().begin(), node->outputs().end());
  if (const auto known = inputs.size() == 2 ? comparison(node->kind(), inputs[0], inputs[1]) : std::nullopt) {
    values_[outputs[0]] = *known;
    return;
  }
  const Kind kind{!node->isNondeterministic(), has(node, Trait::ReadsSizes), has(node, Trait::ReadsRank),
                  may_shrink(node), is_cut(node)};
  learn(inputs, outputs, kind, *run);
}

// Tells whether a node gives a slice whose start or end is a number that may differ in a run.
bool Facts::is_cut(const jit::Node* node) const {
  return is_slice(node) && (open_.contains(node->input(2)) || open_.contains(node->input(3)));
}

// Tells whether a node may give less the more there is: a slice whose end moves down as sizes grow, or whose start moves
// up, as one that is counted from behind does, while its end stays where it is, before the last of any trial.
bool Facts::may_shrink(const jit::Node* node) const {
  if (!is_slice(node)) return false;
  const auto dim = known_int(node->input(1)), start = known_int(node->input(2)), end = known_int(node->input(3));
  const auto moves = [&](const jit::Value* index, const auto& compare) {
    const auto trials = trial_numbers(index);
    const auto has_moved = [&](size_t trial) { return (*trials)[trial] && compare(*(*trials)[trial], *(*trials)[0]); };
    return trials && (*trials)[0] && (has_moved(1) || has_moved(2));
  };
  if (moves(node->input(3), std::less())) return true;
  const auto data = open_.find(node->input(0));
  if (!dim || !end || *end < 0 || data == open_.end()) return false;
  if (start ? *start >= 0 : !moves(node->input(2), std::greater())) return false;
  return std::ranges::any_of(data->second, [&](const auto& trial) {
    const bool has_dim =
        trial && trial->isTensor() && -trial->toTensor().dim() <= *dim && *dim < trial->toTensor().dim();
    return has_dim && trial->toTensor().size(*dim) > *end;
  });
}

}  // namespace onnxtorch
