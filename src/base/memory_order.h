// The order in which the dimensions of a tensor lie in memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <ranges>
#include <vector>

namespace onnxtorch {

// Gives the dimensions from the outermost in memory to the innermost.
template <typename Strides>
std::vector<int64_t> order_of(const Strides& strides) {
  std::vector<int64_t> order(strides.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](int64_t dim) { return strides[dim]; });
  return order;
}

// Gives the strides of a dense tensor with its dimensions in this order.
inline std::vector<int64_t> strides_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& order) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (const int64_t dim : order | std::views::reverse) {
    strides[dim] = stride;
    stride *= sizes[dim];
  }
  return strides;
}

}  // namespace onnxtorch
