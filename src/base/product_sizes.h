// The sizes of a product of matrices, with batches that are expanded.
#pragma once

#include <ATen/ExpandUtils.h>

#include <optional>
#include <vector>

namespace onnxtorch {

// Gives the sizes of the product of batches of matrices; none where they do not fit together.
inline std::optional<std::vector<int64_t>> product_sizes(at::IntArrayRef a, at::IntArrayRef b) {
  if (a.size() < 2 || b.size() < 2 || a.back() != b[b.size() - 2]) return {};
  const auto batch_a = a.slice(0, a.size() - 2), batch_b = b.slice(0, b.size() - 2);
  if (!at::are_expandable(batch_a, batch_b)) return {};
  std::vector<int64_t> sizes = at::infer_size(batch_a, batch_b);
  sizes.push_back(a[a.size() - 2]);
  sizes.push_back(b.back());
  return sizes;
}

}  // namespace onnxtorch
