#include "torch_values.h"

#include <ATen/ATen.h>
#include <pybind11/numpy.h>

#include "base/element_type.h"
#include "python_torch.h"
#include "runtime/torch_tensor.h"

namespace onnxtorch {
namespace {

namespace py = pybind11;

bool speaks_dlpack(py::handle object) { return py::hasattr(object, "__dlpack__"); }

}  // namespace

bool is_torch_like(py::handle object) {
  if (py::isinstance<py::array>(object)) return false;  // although it speaks DLPack
  if (!py::isinstance<py::list>(object) && !py::isinstance<py::tuple>(object))
    return is_tensor(object.ptr()) || speaks_dlpack(object);
  for (const py::handle item : object) {
    if (is_torch_like(item)) return true;
  }
  return false;
}

std::optional<Fed> fed_from_torch(py::handle object, ElementType expected, const std::string& name) {
  py::object owned = py::reinterpret_borrow<py::object>(object);
  if (!is_tensor(object.ptr())) {
    if (!speaks_dlpack(object)) return {};
    owned = py::module_::import("torch").attr("from_dlpack")(object);
  }
  return fed_from_tensor(python_torch().tensor(owned.ptr()), expected, name);
}

std::optional<Fed> memory_of_torch(py::handle object) {
  if (!is_tensor(object.ptr())) return {};
  const at::Tensor t = python_torch().tensor(object.ptr());
  const bool is_plain = t.is_cpu() && t.layout() == c10::kStrided && !t.requires_grad() && !t.is_conj() && !t.is_neg();
  if (!is_plain) return {};
  const at::Tensor memory = at::from_blob(t.mutable_data_ptr(), t.sizes(), t.strides(), t.scalar_type());
  return Fed{ValueType::tensor(element_type_of(t.scalar_type())), memory};
}

py::object tensor_to_torch(const at::Tensor& stored, ElementType type) {
  return py::reinterpret_steal<py::object>(python_torch().object_of_tensor(torch_tensor(stored, type)));
}

}  // namespace onnxtorch
