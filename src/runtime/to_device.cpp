#include "runtime/to_device.h"

#include <ATen/ATen.h>

#include <cstddef>

namespace onnxtorch {
namespace {

constexpr size_t kMostBytes = size_t{64} << 20;  // torch keeps pinned memory for the next time

// Tells whether the tensor goes through pinned memory. ATen uses that memory again only when the device has read it.
bool is_staged(const at::Tensor& given, c10::Device device) {
  return given.is_cpu() && device.is_cuda() && given.numel() > 0 && given.nbytes() <= kMostBytes;
}

c10::IValue moved(const c10::IValue& value, c10::Device device) {
  if (value.isTensor()) {
    const at::Tensor& t = value.toTensor();
    return t.defined() ? to_device(t, device) : value;
  }
  if (value.isList()) {
    c10::impl::GenericList items(value.toList().elementType());
    for (const c10::IValue& item : value.toListRef()) items.push_back(moved(item, device));
    return items;
  }
  if (value.isTuple()) {
    return c10::ivalue::Tuple::create(to_device(value.toTupleRef().elements().vec(), device));
  }
  return value;
}

}  // namespace

at::Tensor to_device(const at::Tensor& given, c10::Device device) {
  if (given.device() == device) return given;
  return is_staged(given, device) ? given.pin_memory().to(device, /*non_blocking=*/true) : given.to(device);
}

std::vector<c10::IValue> to_device(std::vector<c10::IValue> given, c10::Device device) {
  for (c10::IValue& value : given) value = moved(value, device);
  return given;
}

void copy_to_device(const at::Tensor& given, const at::Tensor& there) {
  const bool staged = is_staged(given, there.device());
  there.copy_(staged ? given.pin_memory() : given, /*non_blocking=*/staged);
}

}  // namespace onnxtorch
