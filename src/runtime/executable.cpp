#include "runtime/executable.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/ir.h>

#include <stdexcept>

#include "base/arrange.h"
#include "base/neighbours.h"
#include "graph/loops.h"
#include "graph/symbols.h"
#include "runtime/pending_error.h"
#include "runtime/text_of.h"

namespace onnxtorch {
namespace {

using c10::IValue;

// Gives a result memory of its own. Whatever else refers to it after a run (an input, a constant, another result)
// counts as a use, so the last one that it is asked for keeps the memory.
IValue separated(IValue value) {
  if (value.isTensor() && value.toTensor().defined()) {
    const at::Tensor t = std::move(value).toTensor();
    const bool alone = t.use_count() == 1 && t.storage().use_count() == 1;
    const at::Tensor own = alone || !t.is_contiguous() ? snug(contiguous(t)) : t.clone();
    return own.requires_grad() ? own.detach() : own;
  }
  if (value.isList()) {
    const c10::impl::GenericList items = std::move(value).toList();
    c10::impl::GenericList own(items.elementType());
    own.reserve(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      own.push_back(separated(items.use_count() == 1 ? items.extract(i) : items.get(i)));
    }
    return own;
  }
  if (value.isTuple()) {
    std::vector<IValue> items;
    for (const IValue& item : value.toTupleRef().elements()) items.push_back(separated(item));
    return c10::ivalue::Tuple::create(std::move(items));
  }
  return value;
}

// Python's exceptions reach the interpreter without a text where it is one of torch's dispatch modes that throws.
void interpret(const torch::jit::Code& code, torch::jit::Stack& stack) {
  try {
    torch::jit::InterpreterState(code).run(stack);
  } catch (const std::exception& failure) {
    const std::string pending = take_pending_error();
    if (pending.empty()) throw;
    throw std::runtime_error(text_of(failure) + pending);
  }
}

// The graph as it runs: each iteration of a loop asks whether the run is to stop.
std::shared_ptr<torch::jit::Graph> interruptible(const std::shared_ptr<torch::jit::Graph>& graph) {
  if (loops_of(graph).empty()) return graph;
  std::shared_ptr<torch::jit::Graph> copy = graph->copy();
  for (torch::jit::Node* loop : loops_of(copy)) {
    torch::jit::Node* const check = copy->create(c10::Symbol::fromQualString(kCheckRun), 0);
    loop->blocks()[0]->prependNode(check)->setSourceRange(loop->sourceRange());
  }
  return copy;
}

}  // namespace

Executable::Executable(Program program)
    : program_(std::move(program)),
      code_(interruptible(program_.graph), "onnx_model"),
      memory_(std::make_shared<WorkMemory>()) {}

std::vector<IValue> Executable::run(std::span<const IValue> inputs,
                                    const c10::intrusive_ptr<StringPool>& strings) const {
  const c10::InferenceMode inference(!program_.needs_autograd);
  const WorkMemory::Scope scope(*memory_);
  const WatchedRun watched;
  torch::jit::Stack stack;
  stack.reserve(program_.graph_inputs.size());
  size_t next = 0;
  for (const GraphInput& input : program_.graph_inputs) {
    switch (input.role) {
      case GraphInput::Role::Input:
        stack.push_back(inputs[next++]);
        break;
      case GraphInput::Role::Bound:
        stack.emplace_back(program_.bound[input.index].value);
        break;
      case GraphInput::Role::Strings:
        stack.emplace_back(strings);
        break;
    }
  }
  interpret(code_, stack);
  for (IValue& result : stack) result = separated(std::move(result));
  return stack;
}

}  // namespace onnxtorch
