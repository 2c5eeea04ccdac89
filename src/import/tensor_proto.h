// TensorProto and SparseTensorProto → tensors in storage dtypes.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <string_view>

#include "import/element_type.h"

namespace onnx {
class SparseTensorProto;
class TensorProto;
}  // namespace onnx

namespace onnxtorch {

struct TensorReader {
  std::filesystem::path directory;                        // of the model file, for external data
  std::function<int64_t(std::string_view text)> intern;   // gives a string its id

  at::Tensor read(const onnx::TensorProto& proto) const;
  at::Tensor read(const onnx::SparseTensorProto& proto) const;  // made dense
};

ElementType element_type(const onnx::TensorProto& proto);

}  // namespace onnxtorch
