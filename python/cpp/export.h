// The part of the native module that exports models as TorchScript modules.
#pragma once

#include <pybind11/pybind11.h>

namespace onnxtorch {

void bind_export(pybind11::module_& m);

}  // namespace onnxtorch
