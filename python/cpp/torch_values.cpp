#include "torch_values.h"

#include <ATen/ATen.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>

#include "runtime/torch_tensor.h"

namespace onnxtorch {
namespace {

namespace py = pybind11;

bool is_tensor(py::handle object) { return THPVariable_Check(object.ptr()); }

bool speaks_dlpack(py::handle object) { return py::hasattr(object, "__dlpack__"); }

}  // namespace

bool is_torch_like(py::handle object) {
  if (py::isinstance<py::array>(object)) return false;  // although it speaks DLPack
  if (!py::isinstance<py::list>(object) && !py::isinstance<py::tuple>(object))
    return is_tensor(object) || speaks_dlpack(object);
  for (const py::handle item : object) {
    if (is_torch_like(item)) return true;
  }
  return false;
}

std::optional<Fed> fed_from_torch(py::handle object, ElementType expected, const std::string& name) {
  py::object owned = py::reinterpret_borrow<py::object>(object);
  if (!is_tensor(object)) {
    if (!speaks_dlpack(object)) return {};
    owned = py::module_::import("torch").attr("from_dlpack")(object);
  }
  return fed_from_tensor(THPVariable_Unpack(owned.ptr()), expected, name);
}

py::list weights_to_python(const std::vector<std::vector<SavedWeights>>& saved) {
  py::list result;
  for (const auto& operation : saved) {
    py::list laid;
    for (const auto& [layout, bytes] : operation)
      laid.append(py::make_tuple(layout, py::reinterpret_steal<py::object>(THPVariable_Wrap(bytes))));
    result.append(laid);
  }
  return result;
}

std::vector<std::vector<SavedWeights>> weights_from_python(const py::list& saved) {
  std::vector<std::vector<SavedWeights>> result;
  for (const py::handle operation : saved) {
    auto& laid = result.emplace_back();
    for (const py::handle item : operation) {
      const auto [layout, bytes] = item.cast<std::pair<std::string, py::object>>();
      if (!is_tensor(bytes)) throw py::type_error("laid out weights are torch tensors");
      laid.push_back({layout, THPVariable_Unpack(bytes.ptr())});
    }
  }
  return result;
}

py::object tensor_to_torch(const at::Tensor& stored, ElementType type) {
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(torch_tensor(stored, type)));
}

}  // namespace onnxtorch
