// The native module of the functions that take Python's torch.
#include <pybind11/pybind11.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/api/module.h>

#include "../python_torch.h"

namespace py = pybind11;

namespace {

const onnxtorch::PythonTorch functions{
    .is_tensor = [](PyObject* object) { return THPVariable_Check(object); },
    .tensor = [](PyObject* object) -> const at::Tensor& { return THPVariable_Unpack(object); },
    .object_of_tensor = [](const at::Tensor& tensor) { return THPVariable_Wrap(tensor); },
    .object_of_module = [](const torch::jit::Module& module) { return py::cast(module).release().ptr(); },
};

}  // namespace

PYBIND11_MODULE(_torch, m, py::mod_gil_not_used()) { m.attr("functions") = py::capsule(&functions); }
