// The properties of a graph's nodes that decide how a plan runs them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <span>
#include <vector>

namespace onnxtorch {

// Tell whether the operator writes to what it is given, and to a tensor among it.
bool writes(const torch::jit::Node* node);
bool writes_to_tensor(const torch::jit::Node* node);

// Tells whether a result may be a view of an operand.
bool may_give_views(const torch::jit::Node* node);

// Tells whether the operator is none of ATen's, of TorchScript's or of this library's.
bool is_foreign(const torch::jit::Node* node);

bool draws_random_numbers(const torch::jit::Node* node);

// Gives the values that the blocks of a node read from outside, and its inputs.
std::vector<torch::jit::Value*> captured(torch::jit::Node* node);

// Tells whether the interpreter, given the node by itself and lists of its own, could write to what others read.
bool writes_outside(torch::jit::Node* node);

// Tells whether elements of tensors may have a say in a number of the host.
bool may_come_of_data(const torch::jit::Value* value);

// Tells whether the form of the operator's result follows from those of the arguments, whatever their elements are.
bool form_follows(const torch::jit::Node* node, std::span<const c10::IValue> arguments);

// Tells whether elements decide a form that is most often the same, so that a plan may rely on it.
bool form_may_differ(const torch::jit::Node* node);

// Gives the overload that puts its result into a tensor which is there already; none where ATen makes it of the other
// one, as that would compute in memory of its own, and copy.
std::optional<c10::OperatorHandle> overload_into(const torch::jit::Node* node);

}  // namespace onnxtorch
