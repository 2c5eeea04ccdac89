// Rounding to a type of fewer bits, with results that stay float32.
#pragma once

namespace onnxtorch {

// Declares the operator onnx_torch::rounded to TorchScript, once.
void register_rounding();

}  // namespace onnxtorch
