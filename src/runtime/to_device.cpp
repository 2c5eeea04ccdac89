#include "runtime/to_device.h"

#include <ATen/ATen.h>

#include <cstddef>

namespace onnxtorch {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;  // torch keeps pinned memory for the next time

// ATen gives the pinned memory away again when the device has read it.
bool is_staged(const at::Tensor& given, c10::Device device) {
  return given.is_cpu() && device.is_cuda() && given.numel() > 0 && given.nbytes() <= kMostBytes;
}

}  // namespace

at::Tensor to_device(const at::Tensor& given, c10::Device device) {
  if (given.device() == device) return given;
  return is_staged(given, device) ? given.pin_memory().to(device, /*non_blocking=*/true) : given.to(device);
}

void copy_to_device(const at::Tensor& given, const at::Tensor& there) {
  const bool staged = is_staged(given, there.device());
  there.copy_(staged ? given.pin_memory() : given, /*non_blocking=*/staged);
}

}  // namespace onnxtorch
