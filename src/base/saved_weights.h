// The form in which laid-out weights are saved, so that a later process need not lay them out.
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
