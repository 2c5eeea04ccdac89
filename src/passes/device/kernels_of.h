// The kernels that stand behind a graph node.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/TensorOptions.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <optional>

namespace onnxtorch {

// Gives the operator behind a graph node, where c10's dispatcher has it.
inline std::optional<c10::OperatorHandle> dispatched(const torch::jit::Node* node) {
  const torch::jit::Operator* const op = node->maybeOperator();
  if (!op || !op->isC10Op()) return {};
  return c10::Dispatcher::singleton().findSchema(op->schema().operator_name());
}

inline c10::DispatchKey key_of(c10::Device device) {
  return c10::computeDispatchKey(std::nullopt, std::nullopt, device);
}

}  // namespace onnxtorch
