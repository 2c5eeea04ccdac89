// The values of a model while it is translated. This header is light on purpose: every operator family includes it.
#pragma once

#include <utility>
#include <vector>

#include "base/element_type.h"

namespace torch::jit {
struct Value;
}

namespace onnxtorch {

// A value of the graph under construction. Its TorchScript type is one of
//   Tensor            an ONNX tensor in its storage dtype (a string tensor holds ids of the run's StringPool)
//   int, int[]        an int64 tensor of rank 0 or 1 that is kept on the host (shape arithmetic)
//   bool, bool[]      a bool tensor of rank 0 or 1 that is kept on the host: a condition
//   Tensor[]          a sequence
//   (Tensor, Tensor)  the keys and values of a map; a list of such pairs is a sequence of maps
//   T?                an optional
// Translator::tensor() makes a tensor of what is kept on the host.
// A default-constructed Value is an absent optional input.
struct Value {
  torch::jit::Value* graph = nullptr;
  ValueType type = {};

  bool absent() const { return graph == nullptr; }
  Value as(ValueType t) const { return {graph, std::move(t)}; }
  Value as(ElementType e) const { return {graph, ValueType::tensor(e)}; }
};

using Values = std::vector<Value>;

}  // namespace onnxtorch
