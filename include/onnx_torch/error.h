// Every error this library throws is an onnxtorch::Error.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "onnx_torch/shortened.h"
#include "onnx_torch/visibility.h"

namespace onnxtorch {

// The place in a model where something went wrong; all is empty where no node is to blame.
struct NodeLabel {
  std::string op_type;
  std::string name;
  std::string domain;
  int64_t version = 0;  // the opset version the model imports for the domain

  bool empty() const { return op_type.empty(); }
  std::string str() const {  // Reshape "reshape_4" (opset 13)
    const std::string qualified = domain.empty() ? op_type : domain + "." + op_type;
    const std::string quoted = name.empty() ? "" : " \"" + name + "\"";
    return qualified + quoted + " (opset " + std::to_string(version) + ")";
  }
};

// An error of this library. The text is shortened: of names and lines without end, the beginning is left.
class ONNX_TORCH_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, NodeLabel node = {})
      : std::runtime_error(shortened(node.empty() ? message : node.str() + ": " + message)), node_(std::move(node)) {}
  const NodeLabel& node() const { return node_; }

 private:
  NodeLabel node_;
};

// The model breaks the ONNX specification, or its files cannot be read.
struct ONNX_TORCH_API InvalidModelError : Error {
  using Error::Error;
};

// The model holds operators, or uses of them, that cannot be translated; the message lists all of them.
struct ONNX_TORCH_API UnsupportedError : Error {
  using Error::Error;
};

// The caller fed what does not fit the model's inputs.
struct ONNX_TORCH_API InputError : Error {
  using Error::Error;
};

// The device that was asked for is not there.
struct ONNX_TORCH_API DeviceError : Error {
  using Error::Error;
};

// A node failed while the model ran.
struct ONNX_TORCH_API RunError : Error {
  using Error::Error;
};

// A run was stopped: by a limit of the options, or by the caller.
struct ONNX_TORCH_API StoppedError : RunError {
  using RunError::RunError;
};

}  // namespace onnxtorch
