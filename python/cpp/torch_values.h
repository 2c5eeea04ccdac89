// The conversions between torch tensors, or any object that speaks DLPack, and values in storage form. Neither way
// copies, where the layout of the element type allows.
#pragma once

#include <pybind11/pybind11.h>

#include <optional>
#include <string>

#include "runtime/model.h"

namespace onnxtorch {

// Tells whether the object is one of these, or a list that holds one. An array of numpy's is none.
bool is_torch_like(pybind11::handle object);

// Makes a value of the object; none where it is neither. To be asked of what is no array of numpy's.
std::optional<Fed> fed_from_torch(pybind11::handle object, ElementType expected, const std::string& name);

// Does what memory_of does, for a torch tensor.
std::optional<Fed> memory_of_torch(pybind11::handle object);

pybind11::object tensor_to_torch(const at::Tensor& stored, ElementType type);

}  // namespace onnxtorch
