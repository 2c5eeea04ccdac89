#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace onnxtorch {

// Weights as an operator has laid them out.
struct SavedWeights {
  std::string layout;
  at::Tensor bytes;
};

}  // namespace onnxtorch
