#include "translate/facts.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "kernels/meta_kernels.h"
#include "translate/scripts.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

constexpr int64_t kLargestKnown = 4096;  // elements of a tensor whose value is kept

// Kinds that are not looked into.
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

// The value with each tensor on the meta device; nothing for kinds that hold no shapes.
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

std::optional<jit::Stack> run_quietly(const Facts::Run& run, jit::Stack stack) {
  const at::NoGradGuard no_grad;
  try {
    run(stack);
    return stack;
  } catch (const std::exception&) {
    return {};  // the model's own run will say what is wrong, if it gets there
  }
}

// The nodes that build and take apart lists have no operator behind them.
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
  jit::Operation operation = node->getOperation();
  return [operation](jit::Stack& stack) mutable { operation(stack); };
}

// Operators of others run only when the model does, unless they say what they do to shapes.
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

// Nodes whose results, or whose lists, are not facts: an empty list is there to be appended to.
bool is_opaque(const jit::Node* node) {
  if (is_foreign(node)) return true;
  if (node->kind() == c10::prim::Constant || node->kind() == c10::prim::device || !node->blocks().empty()) return true;
  if (node->kind() == c10::prim::ListConstruct) return node->inputs().empty();
  return node->maybeSchema() && node->schema().is_mutable();
}

}  // namespace

std::optional<IValue> Facts::value(const jit::Value* v) const {
  if (const auto found = values_.find(v); found != values_.end()) return found->second;
  return jit::toIValue(v);
}

std::optional<at::Tensor> Facts::meta(const jit::Value* v) const {
  const auto found = metas_.find(v);
  if (found == metas_.end() || !found->second.isTensor()) return {};
  return found->second.toTensor();
}

void Facts::set_value(const jit::Value* v, const IValue& value) {
  if (is_small(value)) values_[v] = value;
  if (auto meta = to_meta(value)) metas_[v] = *std::move(meta);
}

std::optional<IValue> Facts::take_value(const jit::Value* v) {
  auto node = values_.extract(v);
  return node ? std::optional(std::move(node.mapped())) : std::nullopt;
}

void Facts::set_meta(const jit::Value* v, const at::Tensor& meta) { metas_[v] = meta; }

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
  auto results = run_quietly(run, std::move(known));
  if (results && !std::ranges::all_of(*results, is_small)) results.reset();
  const bool changing = std::ranges::any_of(inputs, [this](const jit::Value* v) { return changing_.contains(v); });
  if (results && changing && std::ranges::any_of(*results, holds_floating_tensor)) results.reset();
  return results;
}

void Facts::learn(std::span<jit::Value* const> inputs, std::span<jit::Value* const> outputs, bool deterministic,
                  const Run& run) {
  if (deterministic) {
    if (const auto results = evaluate(inputs, run); results && results->size() == outputs.size()) {
      for (size_t i = 0; i < outputs.size(); ++i) set_value(outputs[i], (*results)[i]);
      return;
    }
  }
  jit::Stack metas;
  for (const jit::Value* input : inputs) {
    if (auto m = meta_or_value(input)) metas.push_back(*std::move(m));
  }
  if (metas.size() != inputs.size()) return;
  const MetaKernelsInCpp in_cpp;
  const auto results = run_quietly(run, std::move(metas));
  if (!results || results->size() != outputs.size()) return;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const IValue& result = (*results)[i];
    if (result.isTensor() || result.isTensorList()) {
      if (auto meta = to_meta(result)) metas_[outputs[i]] = *std::move(meta);
    } else if (is_small(result) && !result.isTuple()) {
      values_[outputs[i]] = result;  // sizes and what follows from them
    }
  }
}

void Facts::learn(jit::Node* node) {
  if (is_opaque(node)) return;
  const auto run = runner(node);
  if (!run) return;
  const std::vector<jit::Value*> inputs(node->inputs().begin(), node->inputs().end());
  const std::vector<jit::Value*> outputs(node->outputs().begin(), node->outputs().end());
  learn(inputs, outputs, !node->isNondeterministic(), *run);
}

}  // namespace onnxtorch
