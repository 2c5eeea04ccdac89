// The conversions between what callers have (arrays, tensors, lists of them, dictionaries, None) and values in storage
// form.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <vector>

#include "runtime/model.h"

namespace onnxtorch {

// A maker of the values that one run is fed. They borrow the memory of arrays where the layout allows, and must not
// outlive the feeder, which keeps the arrays.
class Feeder {
 public:
  explicit Feeder(StringPool& strings) : strings_(strings) {}

  // Makes a value. `expected` says what a scalar, list or empty array is meant to be.
  Fed operator()(pybind11::handle object, const InputSpec& expected);

 private:
  Fed value(pybind11::handle object, const ValueType& expected, const std::string& name);
  Fed tensor(pybind11::handle object, const ValueType& expected, const std::string& name);

  StringPool& strings_;
  std::vector<pybind11::array> kept_;
};

// Gives the memory of an array or a torch tensor on the host, for a result to lie in; none where results of its type,
// or in its order of memory, do not lie there as it wants them. It must not outlive the object.
std::optional<Fed> memory_of(pybind11::handle object);

// The form that tensors come out in. Strings are numpy arrays in either form.
enum class Form : uint8_t { Numpy, Torch };

pybind11::object value_to_python(const c10::IValue& value, const ValueType& type, const StringPool& strings, Form form);

// Convert weights that packed operators have laid out: for each operator a list of (layout, array of bytes). Neither
// way copies.
pybind11::list weights_to_python(const std::vector<std::vector<SavedWeights>>& saved);
std::vector<std::vector<SavedWeights>> weights_from_python(const pybind11::list& saved);

}  // namespace onnxtorch
