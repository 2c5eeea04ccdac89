#include "onnx_torch/error.h"

namespace onnxtorch {

std::string NodeLabel::str() const {
  const std::string qualified = domain.empty() ? op_type : domain + "." + op_type;
  const std::string quoted = name.empty() ? "" : " \"" + name + "\"";
  return qualified + quoted + " (opset " + std::to_string(version) + ")";
}

}  // namespace onnxtorch
