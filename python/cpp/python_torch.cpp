#include "python_torch.h"

#include <pybind11/pybind11.h>

namespace onnxtorch {
namespace {

namespace py = pybind11;

const PythonTorch* loaded = nullptr;  // guarded by the GIL, which an import may give away for a while

bool torch_is_imported() {
  return static_cast<bool>(py::reinterpret_steal<py::object>(PyImport_GetModule(py::str("torch").ptr())));
}

}  // namespace

const PythonTorch& python_torch() {
  if (!loaded) {
    py::module_::import("torch");  // loads the libraries that the module needs
    const py::object functions = py::module_::import("onnx_torch._torch").attr("functions");
    loaded = functions.cast<py::capsule>().get_pointer<const PythonTorch>();
  }
  return *loaded;
}

bool is_tensor(PyObject* object) { return (loaded || torch_is_imported()) && python_torch().is_tensor(object); }

}  // namespace onnxtorch
