// The conversions between the torch tensors of a caller and values in storage form. Neither way copies, where the
// layout of the element type allows.
#pragma once

#include <string>

#include "runtime/model.h"

namespace onnxtorch {

// Makes a value of the caller's tensor. `expected` is the element type of bytes that each hold a narrower element.
// Throws InputError where ONNX has no such type.
Fed fed_from_tensor(const at::Tensor& tensor, ElementType expected, const std::string& input);

// Gives a tensor in the dtype that torch itself has for the element type; one byte an element for those narrower than 8
// bits.
at::Tensor torch_tensor(const at::Tensor& stored, ElementType type);

}  // namespace onnxtorch
