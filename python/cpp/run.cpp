#include "run.h"

#include <pybind11/stl.h>

#include <algorithm>

#include "base/thread_limit.h"
#include "interruption.h"
#include "logged_warnings.h"
#include "numpy_values.h"
#include "text.h"
#include "torch_values.h"

namespace onnxtorch {
namespace {

namespace py = pybind11;

[[noreturn]] void refuse_unknown(const py::dict& feeds, const std::vector<py::str>& names) {
  const py::dict seen = feeds.attr("copy")();
  for (const auto& [name, value] : seen) {
    if (std::ranges::any_of(names, [&](const py::str& known) { return known.equal(name); })) continue;
    throw InputError(py::str("unknown input {!r}; the model's inputs are {!r}").format(name, py::cast(names)));
  }
  throw InputError("the dictionary of inputs was changed while it was read");
}

// Gives the value of a key, or null. Without the GIL another thread may remove it meanwhile: the reference is our own
// from the start.
py::object item_of(const py::dict& dictionary, const py::str& key) {
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* value = nullptr;
  if (PyDict_GetItemRef(dictionary.ptr(), key.ptr(), &value) < 0) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(value);
#else
  PyObject* const value = PyDict_GetItemWithError(dictionary.ptr(), key.ptr());
  if (!value && PyErr_Occurred()) throw py::error_already_set();
  return py::reinterpret_borrow<py::object>(value);
#endif
}

// Gives what is fed to each of the model's inputs; null where nothing is.
std::vector<py::object> arranged(const PythonModel& model, const py::dict& feeds) {
  const std::vector<py::str>& names = model.input_names();
  std::vector<py::object> result;
  result.reserve(names.size());
  size_t found = 0;
  for (const py::str& name : names) {
    found += static_cast<bool>(result.emplace_back(item_of(feeds, name)));
  }
  if (found < feeds.size()) refuse_unknown(feeds, names);
  return result;
}

std::vector<py::str> interned(const std::vector<InputSpec>& inputs) {
  const WithGil gil;
  std::vector<py::str> names;
  for (const InputSpec& input : inputs) {
    PyObject* name = text(input.name).release().ptr();
    PyUnicode_InternInPlace(&name);
    names.push_back(py::reinterpret_steal<py::str>(name));
  }
  return names;
}

}  // namespace

PythonModel::PythonModel(std::shared_ptr<const ModelFile> file, const Options& options,
                         std::vector<std::vector<SavedWeights>> saved)
    : PreparedModel(std::move(file), options, std::move(saved)), input_names_(interned(inputs())) {}

py::list run(const PythonModel& model, const py::dict& feeds, std::vector<std::string> names,
             std::optional<bool> as_torch, const StopFlag* stop, PreparedModel::Profile* profile,
             const py::object& out) {
  const ThreadLimit limit(model.options().threads);  // for the conversions before and after the run, too
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
    result = without_gil([&] { return model.run(fed, strings, {std::move(names)}, profile, stop, targets); });
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
