#include "runtime/executable.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/ir.h>

#include <stdexcept>

#include "base/neighbours.h"
#include "base/text_of.h"
#include "runtime/pending_error.h"
#include "runtime/running_graph.h"
#include "runtime/separated.h"

namespace onnxtorch {
namespace {

using c10::IValue;

// Runs the code. A Python exception reaches the interpreter without a text where one of torch's dispatch modes throws
// it, so the pending one's text is added.
void interpret(const torch::jit::Code& code, torch::jit::Stack& stack) {
  try {
    torch::jit::InterpreterState(code).run(stack);
  } catch (const std::exception& failure) {
    const std::string pending = take_pending_error();
    if (pending.empty()) throw;
    throw std::runtime_error(text_of(failure) + pending);
  }
}

}  // namespace

Executable::Executable(Program program, size_t plans, std::shared_ptr<WorkMemory> memory)
    : program_(std::move(program)),
      code_(running_graph(program_), "onnx_model"),
      growths_(program_.needs_autograd ? std::vector<Growth>() : growths_of(program_)),
      memory_(std::move(memory)),
      plans_(program_, program_.needs_autograd ? 0 : plans) {}

void Executable::trust_sizes() const {
  std::call_once(trusts_, [this] {
    trusting_.emplace(interruptible(program_.graph), "onnx_model");
    has_trust_ = true;
  });
}

const torch::jit::Code& Executable::code() const { return has_trust_ ? *trusting_ : code_; }

std::vector<IValue> Executable::run(std::span<const IValue> inputs, const c10::intrusive_ptr<StringPool>& strings,
                                    Targets targets) const {
  const c10::InferenceMode inference(!program_.needs_autograd);
  const WorkMemory::Scope scope(*memory_);
  const WatchedRun watched;
  const Lent own = lent(std::move(targets), inputs, growths_);
  const GrownInPlace in_place(own.grown);
  return plans_.run(inputs, strings, own.targets, [&] { return interpreted(inputs, strings, own.targets); });
}

std::vector<IValue> Executable::interpreted(std::span<const IValue> inputs,
                                            const c10::intrusive_ptr<StringPool>& strings,
                                            const Targets& targets) const {
  torch::jit::Stack stack;
  stack.reserve(program_.graph_inputs.size());
  size_t next = 0;
  for (const GraphInput& input : program_.graph_inputs) {
    switch (input.role) {
      case GraphInput::Role::Input:
        stack.push_back(inputs[next++]);
        break;
      case GraphInput::Role::Constant:
        stack.emplace_back(program_.constants[input.index].value);
        break;
      case GraphInput::Role::Strings:
        stack.emplace_back(strings);
        break;
    }
  }
  interpret(code(), stack);
  separate(stack, targets);
  return stack;
}

}  // namespace onnxtorch
