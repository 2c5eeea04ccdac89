// Tensors as images of several channels, for operators that reduce each channel to a number.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/parallel.h"

namespace onnxtorch {

struct Images {
  int64_t count, channels, size;  // of a channel
};

inline bool lie_channels_last(const at::Tensor& x) { return x.dim() >= 3 && x.movedim(1, -1).is_contiguous(); }

inline Images images(const at::Tensor& x) { return {x.size(0), x.size(1), x.numel() / x.size(0) / x.size(1)}; }

// Allocates a tensor of one element for each channel of each image, with dimensions of size 1 for those that are gone.
inline at::Tensor one_for_each_channel(const at::Tensor& x, at::ScalarType type) {
  std::vector<int64_t> sizes(x.dim(), 1);
  std::ranges::copy(x.sizes().slice(0, 2), sizes.begin());
  return at::empty(sizes, x.options().dtype(type));
}

// Calls visit(image, channel, count) for at most `most` channels of images that lie channels-last, from `channel` on;
// `cost` is that of an element.
template <typename Visit>
void for_channels(const Images& of, int64_t most, int64_t cost, const Visit& visit) {
  const int64_t parts = (of.channels + most - 1) / most;
  parallel_for(of.count * parts, cost * of.size * most, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t channel = i % parts * most;
      visit(i / parts, channel, std::min(most, of.channels - channel));
    }
  });
}

}  // namespace onnxtorch
