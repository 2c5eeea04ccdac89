// The element types and sizes that are known of values before a run, as their TorchScript types tell them.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <optional>

namespace onnxtorch {

// Gives the element type, where it is known and the value is a tensor.
inline std::optional<c10::ScalarType> type_of(const torch::jit::Value* value) {
  const auto type = value->type()->cast<c10::TensorType>();
  return type ? type->scalarType() : std::nullopt;
}

inline bool is_tensor(const torch::jit::Value* value) { return value->type()->kind() == c10::TypeKind::TensorType; }

// Gives the type of a tensor of these elements, with the sizes that are known of another value.
inline c10::TensorTypePtr type_like(const torch::jit::Value* like, std::optional<c10::ScalarType> elements) {
  return like->type()->expectRef<c10::TensorType>().withScalarType(elements);
}

// Tells whether a tensor is known to have at least this many elements.
inline bool has_at_least(const torch::jit::Value* value, size_t elements) {
  const auto known = value->type()->expectRef<c10::TensorType>().numel();
  return known && *known >= elements;
}

// Gives the argument that names the element type of a node's results; null where it has none.
const torch::jit::Value* dtype_argument(const torch::jit::Node* node);

// Gives the tensors of a block that have no element type yet the one that follows from what is known.
void infer_types(torch::jit::Block* block);

}  // namespace onnxtorch
