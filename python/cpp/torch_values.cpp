#include "torch_values.h"

#include <ATen/ATen.h>
#include <pybind11/numpy.h>
#include <torch/csrc/autograd/python_variable.h>

#include "runtime/torch_tensor.h"

namespace onnxtorch {
namespace {

namespace py = pybind11;

bool is_tensor(py::handle object) { return THPVariable_Check(object.ptr()); }

bool speaks_dlpack(py::handle object) {
  return !py::isinstance<py::array>(object) && py::hasattr(object, "__dlpack__");
}

}  // namespace

std::optional<Fed> fed_from_torch(py::handle object, ElementType expected, const std::string& name) {
  py::object owned = py::reinterpret_borrow<py::object>(object);
  if (!is_tensor(object)) {
    if (!speaks_dlpack(object)) return {};
    owned = py::module_::import("torch").attr("from_dlpack")(object);
  }
  return fed_from_tensor(THPVariable_Unpack(owned.ptr()), expected, name);
}

py::object tensor_to_torch(const at::Tensor& stored, ElementType type) {
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(torch_tensor(stored, type)));
}

}  // namespace onnxtorch
