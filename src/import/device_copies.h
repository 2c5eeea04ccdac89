// Copies of a model's tensors on devices, each shared by all that need it at the same time.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <utility>

namespace onnx {
class TensorProto;
}

namespace onnxtorch {

// The copies of a model's tensors. None is held here: a copy goes with the last that holds it. Any number of threads
// may ask.
class DeviceCopies {
 public:
  // Gives the copy on a device of a tensor that was `read` from the part `of` of the model.
  at::Tensor get(const onnx::TensorProto* of, const at::Tensor& read, c10::Device device);

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::mutex mutex_;
  std::map<std::pair<const onnx::TensorProto*, c10::DeviceIndex>, Weak> copies_;
};

}  // namespace onnxtorch
