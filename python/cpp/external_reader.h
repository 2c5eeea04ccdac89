// The external data that Python holds, or gives when it is asked for.
#pragma once

#include <pybind11/pybind11.h>

#include "onnx_torch/external.h"

namespace onnxtorch {

// Makes a reader of a dictionary of buffers by the names of files, or of a function (name, offset, length) that gives a
// buffer, or None for what lies in a file; none of None. It may be called, and let go, without Python's lock.
ExternalReader reader_from_python(const pybind11::object& external);

}  // namespace onnxtorch
