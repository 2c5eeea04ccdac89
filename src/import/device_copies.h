// Copies of a model's tensors on devices, which all share that need one at the same time.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <utility>

namespace onnx {
class TensorProto;
}

namespace onnxtorch {

// Holds no copy itself: it goes with the last that holds it. Any number of threads may ask.
class DeviceCopies {
 public:
  // Of what was read from this part of the model.
  at::Tensor get(const onnx::TensorProto* of, const at::Tensor& read, c10::Device device);

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::mutex mutex_;
  std::map<std::pair<const onnx::TensorProto*, c10::DeviceIndex>, Weak> copies_;
};

}  // namespace onnxtorch
