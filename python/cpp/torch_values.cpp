#include "torch_values.h"

#include <ATen/ATen.h>
#include <pybind11/numpy.h>
#include <torch/csrc/autograd/python_variable.h>

#include "import/storage.h"

namespace onnxtorch {
namespace {

namespace py = pybind11;

bool is_tensor(py::handle object) { return THPVariable_Check(object.ptr()); }

bool speaks_dlpack(py::handle object) {
  return !py::isinstance<py::array>(object) && py::hasattr(object, "__dlpack__");
}

ElementType type_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::kUInt16: return ElementType::Uint16;
    case c10::kUInt32: return ElementType::Uint32;
    case c10::kUInt64: return ElementType::Uint64;
    default: return element_type_of(dtype);
  }
}

// torch has dtypes for floats of 8 bits, unlike numpy; what is narrower comes and goes one element a byte.
bool is_own_dtype(ElementType type) { return is_small_float(type) && info(type).bits == 8; }

// A tensor made in inference mode could not be used where gradients are; its memory, in a tensor of today's mode, can.
at::Tensor outside_inference(const at::Tensor& t) {
  if (!t.is_inference()) return t;
  return at::empty({0}, t.options()).set_(t.storage(), t.storage_offset(), t.sizes(), t.strides());
}

}  // namespace

std::optional<Fed> fed_from_torch(py::handle object, ElementType expected, const std::string& name) {
  py::object owned = py::reinterpret_borrow<py::object>(object);
  if (!is_tensor(object)) {
    if (!speaks_dlpack(object)) return {};
    owned = py::module_::import("torch").attr("from_dlpack")(object);
  }
  const at::Tensor tensor = THPVariable_Unpack(owned.ptr()).detach().resolve_conj().resolve_neg();
  ElementType type = type_of(tensor.scalar_type());
  if (type == ElementType::Undefined || tensor.layout() != at::kStrided) {
    throw InputError("the input \"" + name + "\" is a torch tensor that ONNX has no type for: " +
                     py::cast<std::string>(py::str(py::reinterpret_borrow<py::object>(owned).attr("dtype"))) + ", " +
                     py::cast<std::string>(py::str(owned.attr("layout"))));
  }
  if (info(expected).bits < 8 && native_dtype(expected) == tensor.scalar_type()) type = expected;
  return Fed{ValueType::tensor(type), to_storage(type, tensor)};
}

py::object tensor_to_torch(const at::Tensor& stored, ElementType type) {
  const at::Tensor native = is_own_dtype(type) ? stored : from_storage(type, stored);
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(outside_inference(native)));
}

}  // namespace onnxtorch
