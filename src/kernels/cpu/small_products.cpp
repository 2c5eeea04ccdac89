#include "kernels/cpu/small_products.h"

#include <algorithm>
#include <array>

#include "base/parallel.h"
#include "kernels/cpu/cpu_features.h"

namespace onnxtorch {
namespace {

constexpr int64_t kFewestRows = 2;
constexpr int64_t kMostProducts = 1 << 16;  // of elements of two matrices
constexpr int64_t kMostMatrices = 1 << 12;
constexpr int64_t kProductsOfCost = 32;  // so many products take as long as an element, as parallel_for counts

// Gives where the matrices of both tensors begin, in the order of the result's.
std::vector<std::pair<int64_t, int64_t>> begins(const at::Tensor& a, const at::Tensor& b) {
  std::vector<std::pair<int64_t, int64_t>> found{{0, 0}};
  for (int64_t dim = 0; dim + 2 < a.dim(); ++dim) {
    const int64_t size = std::max(a.size(dim), b.size(dim));
    const int64_t a_step = a.size(dim) == 1 ? 0 : a.stride(dim), b_step = b.size(dim) == 1 ? 0 : b.stride(dim);
    std::vector<std::pair<int64_t, int64_t>> next;
    for (const auto& [of_a, of_b] : found)
      for (int64_t i = 0; i < size; ++i) next.emplace_back(of_a + i * a_step, of_b + i * b_step);
    found = std::move(next);
  }
  return found;
}

}  // namespace

std::optional<SmallProducts> SmallProducts::of(const at::Tensor& a, const at::Tensor& b) {
  const int64_t rows = a.size(-2), depth = a.size(-1), columns = b.size(-1);
  if (a.numel() == 0 || b.numel() == 0) return {};
  const int64_t most_matrices = a.numel() / (rows * depth) * (b.numel() / (depth * columns));
  const bool is_small = rows >= kFewestRows && depth <= kMostSmallDepth && columns <= kMostSmallColumns &&
                        rows * depth * columns <= kMostProducts && most_matrices <= kMostMatrices;
  const bool is_plain = (a.stride(-1) == 1 || depth == 1) && (b.stride(-1) == 1 || b.stride(-2) == 1);
  if (!is_small || !is_plain) return {};
  SmallProducts products;
  products.one_ = {rows, depth, columns, a.stride(-2), b.stride(-2), b.stride(-1)};
  products.begins_ = begins(a, b);
  return products;
}

bool SmallProducts::are_few() const {
  return static_cast<int64_t>(begins_.size()) * one_.rows * one_.depth * one_.columns <= kMostProducts;
}

void SmallProducts::compute(const float* a, const float* b, float* result) const {
  const int64_t size = one_.rows * one_.columns;
  parallel_for(
      static_cast<int64_t>(begins_.size()), size * one_.depth / kProductsOfCost, [&](int64_t begin, int64_t end) {
        alignas(64) std::array<float, kSmallProductRoom> room;
        for (int64_t i = begin; i < end; ++i) {
          const auto [of_a, of_b] = begins_[i];
          for_this_cpu<SmallProductKernels>().multiply(one_, a + of_a, b + of_b, result + i * size, room.data());
        }
      });
}

}  // namespace onnxtorch
