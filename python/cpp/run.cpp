#include "run.h"

#include <pybind11/stl.h>

#include <algorithm>

#include "interruption.h"
#include "logged_warnings.h"
#include "numpy_values.h"
#include "text.h"
#include "torch_values.h"

namespace onnxtorch {
namespace {

namespace py = pybind11;

[[noreturn]] void refuse_unknown(const py::dict& feeds, const std::vector<py::str>& names) {
  for (const auto& [name, value] : feeds) {
    if (std::ranges::any_of(names, [&](const py::str& known) { return known.equal(name); })) continue;
    throw InputError(py::str("unknown input {!r}; the model's inputs are {!r}").format(name, py::cast(names)));
  }
  throw InputError("the dictionary of inputs was changed while it was read");
}

// What is fed to each of the model's inputs; null where nothing is.
std::vector<py::object> arranged(const PythonModel& model, const py::dict& feeds) {
  const std::vector<py::str>& names = model.input_names();
  std::vector<py::object> result;
  result.reserve(names.size());
  size_t found = 0;
  for (const py::str& name : names) {
    PyObject* const value = PyDict_GetItemWithError(feeds.ptr(), name.ptr());
    if (!value && PyErr_Occurred()) throw py::error_already_set();
    found += value != nullptr;
    result.push_back(py::reinterpret_borrow<py::object>(value));
  }
  if (found < feeds.size()) refuse_unknown(feeds, names);
  return result;
}

}  // namespace

const std::vector<py::str>& PythonModel::input_names() const {
  if (input_names_.size() < inputs().size()) {
    for (const InputSpec& input : inputs()) {
      PyObject* name = text(input.name).release().ptr();
      PyUnicode_InternInPlace(&name);
      input_names_.push_back(py::reinterpret_steal<py::str>(name));
    }
  }
  return input_names_;
}

py::list run(const PythonModel& model, const py::dict& feeds, std::vector<std::string> names,
             std::optional<bool> as_torch, const StopFlag* stop, PreparedModel::Profile* profile,
             const py::object& out) {
  const std::vector<py::object> given = arranged(model, feeds);
  const auto strings = model.new_strings();
  Feeder feeder(*strings);
  FedInputs fed;
  fed.reserve(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    fed.push_back(given[i] ? std::optional(feeder(given[i], model.inputs()[i])) : std::nullopt);
  }
  Targets targets;
  std::vector<ElementType> elements;
  if (!out.is_none()) {
    for (const py::handle target : out) {
      const auto memory = memory_of(target);
      targets.push_back(memory ? memory->value.toTensor() : at::Tensor());
      elements.push_back(memory ? memory->type.element : ElementType::Undefined);
    }
  }
  PreparedModel::Result result;
  {
    const LoggedWarnings warnings;
    result = without_gil([&] { return model.run(fed, strings, std::move(names), profile, stop, targets); });
  }
  const bool torch =
      as_torch ? *as_torch
               : std::ranges::any_of(given, [](const py::object& object) { return object && is_torch_like(object); });
  const Form form = torch ? Form::Torch : Form::Numpy;
  py::list outputs(result.values.size());
  for (size_t i = 0; i < result.values.size(); ++i) {
    const bool is_there = i < targets.size() && targets[i].defined() && result.values[i].isTensor() &&
                          result.values[i].toTensor().is_same(targets[i]) && result.types[i].element == elements[i];
    outputs[i] = is_there ? py::reinterpret_borrow<py::object>(py::list(out)[i])
                          : value_to_python(result.values[i], result.types[i], *strings, form);
  }
  return outputs;
}

}  // namespace onnxtorch
