// Between what callers have (arrays, tensors, lists of them, dictionaries, None) and values in storage form.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "runtime/model.h"

namespace onnxtorch {

// `expected` says what a scalar, list or empty array is meant to be. Numeric arrays are borrowed where their layout
// allows: the result must not outlive `object`.
Fed fed_from_python(pybind11::handle object, const InputSpec& expected, StringPool& strings);

// What tensors come out as. Strings are numpy arrays in either form.
enum class Form : uint8_t { Numpy, Torch };

pybind11::object value_to_python(const c10::IValue& value, const ValueType& type, const StringPool& strings, Form form);

}  // namespace onnxtorch
