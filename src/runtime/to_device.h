// The way of a caller's tensors to the device: through pinned memory, so that the host does not wait for the copy.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace onnxtorch {

// Gives the tensor on the device: the tensor itself where it lies there already.
at::Tensor to_device(const at::Tensor& given, c10::Device device);

// Brings all tensors in the values to the device.
std::vector<c10::IValue> to_device(std::vector<c10::IValue> given, c10::Device device);

// Copies a tensor into one of the same sizes and type.
void copy_to_device(const at::Tensor& given, const at::Tensor& there);

}  // namespace onnxtorch
