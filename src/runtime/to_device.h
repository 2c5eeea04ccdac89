// What a caller gives comes to the device. Through memory that is pinned, so that the host does not wait for the copy.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace onnxtorch {

// The tensor itself where it lies there already.
at::Tensor to_device(const at::Tensor& given, c10::Device device);

// All tensors in them.
std::vector<c10::IValue> to_device(std::vector<c10::IValue> given, c10::Device device);

// Into a tensor of the same sizes and type.
void copy_to_device(const at::Tensor& given, const at::Tensor& there);

}  // namespace onnxtorch
