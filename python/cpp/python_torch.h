// The functions that take Python's torch. They are in a module of their own, onnx_torch._torch, that is loaded when it
// is first needed, so that whoever needs none of them does not wait for the import of torch.
#pragma once

#include <Python.h>

namespace at {
class Tensor;
}
namespace torch::jit {
struct Module;
}

namespace onnxtorch {

// The functions that the module has to offer, in its attribute `functions`, a capsule. All are to be called with the
// GIL held.
struct PythonTorch {
  bool (*is_tensor)(PyObject* object);
  const at::Tensor& (*tensor)(PyObject* object);
  PyObject* (*object_of_tensor)(const at::Tensor& tensor);
  PyObject* (*object_of_module)(const torch::jit::Module& module);
};

// Gives the functions. Imports torch, where it is not imported yet.
const PythonTorch& python_torch();

// Tells whether the object is a torch tensor, of which there are none before torch is imported.
bool is_tensor(PyObject* object);

}  // namespace onnxtorch
