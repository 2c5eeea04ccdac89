// A convolution with a constant weight, and the sizes of its images.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <vector>

namespace onnxtorch {

struct Convolution {
  at::Tensor weight, bias;  // the bias may be undefined
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups = 1;
  c10::ScalarType result = c10::kFloat;
};

// Tells whether a convolution's weight, groups and parameters go together, which oneDNN and the code that lays out
// weights trust. ATen, which is left those that do not, refuses them.
bool go_together(const at::Tensor& weight, int64_t groups,
                 std::initializer_list<const std::vector<int64_t>*> parameters);

// Tells whether the convolution is defined for images of these sizes.
bool fits(const Convolution& c, at::IntArrayRef sizes);

std::vector<int64_t> result_sizes(const Convolution& c, at::IntArrayRef sizes);

// Gives strides with the channels innermost. A size of 1 takes the stride that it would have were it larger.
std::vector<int64_t> channels_last_strides(at::IntArrayRef sizes);

}  // namespace onnxtorch
