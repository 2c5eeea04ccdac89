// The values that a caller feeds.
#pragma once

#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

#include "onnx_torch/types.h"

namespace onnxtorch {

// A value in storage form with its ONNX type.
struct Fed {
  ValueType type;
  c10::IValue value;
};

// A value for each of the model's inputs, in order; none where an initializer stands for it.
using FedInputs = std::vector<std::optional<Fed>>;

}  // namespace onnxtorch
