#include "logged_warnings.h"

#include <pybind11/pybind11.h>

namespace onnxtorch {

namespace py = pybind11;

// Logs the warnings. An exception that pybind11 throws for a fault of its own may end the process.
LoggedWarnings::~LoggedWarnings() {  // NOLINT(bugprone-exception-escape)
  if (collector_.messages.empty()) return;
  const py::error_scope pending;  // an exception on its way out stays as it is
  try {
    const py::object warning = py::module_::import("onnx_torch.log").attr("logger").attr("warning");
    for (const std::string& message : collector_.messages) warning("%s", message);
  } catch (py::error_already_set& error) {
    error.discard_as_unraisable("onnx_torch: logging a warning");
  }
}

}  // namespace onnxtorch
