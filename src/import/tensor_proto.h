// The conversion of TensorProto and SparseTensorProto to tensors in storage dtypes.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/element_type.h"
#include "import/external_data.h"

namespace onnx {
class SparseTensorProto;
class TensorProto;
}  // namespace onnx

namespace onnxtorch {

struct TensorReader {
  const ExternalData& external;
  ExternalAccess access;
  std::function<int64_t(std::string_view text)> intern;  // gives a string its id

  // Reads a tensor. It is a view of the message or of its file, where they have the storage's layout; `owner` keeps the
  // message.
  at::Tensor read(const onnx::TensorProto& proto, const std::shared_ptr<const void>& owner) const;
  std::vector<at::Tensor> read(std::span<const onnx::TensorProto* const> protos,
                               const std::shared_ptr<const void>& owner) const;
  at::Tensor read(const onnx::SparseTensorProto& proto, const std::shared_ptr<const void>& owner) const;  // made dense
};

ElementType element_type(const onnx::TensorProto& proto);
int64_t data_size(const onnx::TensorProto& proto);                                // in bytes, for all types but strings
[[noreturn]] void fail(const onnx::TensorProto& proto, const std::string& what);  // throws an InvalidModelError

}  // namespace onnxtorch
