#include "python_torch.h"

#include <pybind11/pybind11.h>

#include <atomic>

namespace onnxtorch {
namespace {

namespace py = pybind11;

std::atomic<const PythonTorch*> loaded = nullptr;  // threads that import it at once find the same

bool torch_is_imported() {
  return static_cast<bool>(py::reinterpret_steal<py::object>(PyImport_GetModule(py::str("torch").ptr())));
}

}  // namespace

const PythonTorch& python_torch() {
  const PythonTorch* found = loaded;
  if (!found) {
    py::module_::import("torch");  // loads the libraries that the module needs
    const py::object functions = py::module_::import("onnx_torch._torch").attr("functions");
    loaded = found = functions.cast<py::capsule>().get_pointer<const PythonTorch>();
  }
  return *found;
}

bool is_tensor(PyObject* object) { return (loaded || torch_is_imported()) && python_torch().is_tensor(object); }

}  // namespace onnxtorch
