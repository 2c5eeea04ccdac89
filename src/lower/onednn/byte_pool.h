// Maximum pooling of numbers of 8 bits, which ATen has for contiguous images only.
#pragma once

#include <ATen/core/Tensor.h>

namespace onnxtorch::onednn {

// As aten::max_pool2d takes it; of uint8 or int8.
at::Tensor max_pool2d(const at::Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride, at::IntArrayRef padding,
                      at::IntArrayRef dilation, bool ceil_mode);

}  // namespace onnxtorch::onednn
