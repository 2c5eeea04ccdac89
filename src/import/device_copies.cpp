#include "import/device_copies.h"

namespace onnxtorch {

at::Tensor DeviceCopies::get(const onnx::TensorProto* of, const at::Tensor& read, c10::Device device) {
  const std::lock_guard lock(mutex_);
  const auto known = copies_.find({of, device.index()});
  if (known != copies_.end()) {
    if (auto copy = known->second.lock()) return at::Tensor(std::move(copy));
    copies_.erase(known);
  }
  at::Tensor copy = read.to(device);
  copies_.emplace(std::pair(of, device.index()), Weak(copy.getIntrusivePtr()));
  return copy;
}

}  // namespace onnxtorch
