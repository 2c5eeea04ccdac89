// The parts that the devices' kernels of DeformConv share.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace onnxtorch {

at::Tensor deform_conv_meta(const at::Tensor& x, const at::Tensor& w, const at::Tensor& offset,
                            const std::optional<at::Tensor>& b, const std::optional<at::Tensor>& mask,
                            at::IntArrayRef dilations, int64_t group, at::IntArrayRef kernel_shape,
                            int64_t offset_group, at::IntArrayRef pads, at::IntArrayRef strides);

}  // namespace onnxtorch
