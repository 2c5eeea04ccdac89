#include "kernels/cpu/packed/convolution.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

namespace onnxtorch {

bool go_together(const at::Tensor& weight, int64_t groups,
                 std::initializer_list<const std::vector<int64_t>*> parameters) {
  if (weight.dim() < 3 || weight.numel() == 0 || groups < 1 || weight.size(0) % groups != 0) return false;
  const auto of_each = [&](const std::vector<int64_t>* one) { return std::ssize(*one) == weight.dim() - 2; };
  return std::ranges::all_of(parameters, of_each);
}

bool fits(const Convolution& c, at::IntArrayRef sizes) {
  if (static_cast<int64_t>(sizes.size()) != c.weight.dim() || sizes[1] != c.weight.size(1) * c.groups) return false;
  return std::ranges::all_of(result_sizes(c, sizes), [](int64_t size) { return size > 0; });
}

std::vector<int64_t> result_sizes(const Convolution& c, at::IntArrayRef sizes) {
  std::vector<int64_t> result = {sizes[0], c.weight.size(0)};
  for (size_t i = 0; i < c.stride.size(); ++i) {
    const int64_t window = (c.weight.sizes()[i + 2] - 1) * c.dilation[i] + 1;
    const int64_t room = sizes[i + 2] + 2 * c.padding[i] - window;
    result.push_back(room < 0 ? 0 : room / c.stride[i] + 1);
  }
  return result;
}

std::vector<int64_t> channels_last_strides(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = sizes[1];
  strides[1] = 1;
  for (size_t i = sizes.size() - 1; i >= 2; --i) {
    strides[i] = step;
    step *= sizes[i];
  }
  strides[0] = step;
  return strides;
}

}  // namespace onnxtorch
