// Products of batches of small matrices.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/simd/small_product.h"

namespace onnxtorch {

class SmallProducts {
 public:
  // Makes the products for tensors of floats that have the sizes and strides of these, which have equally many
  // dimensions. Returns none where the matrices are not small, or where the rows of a, or both the rows and the columns
  // of b, are not contiguous.
  static std::optional<SmallProducts> of(const at::Tensor& a, const at::Tensor& b);

  // Tells whether all the products together take less time than the call of a primitive of oneDNN.
  bool are_few() const;

  // Computes result = a @ b; the result is contiguous.
  void compute(const float* a, const float* b, float* result) const;

 private:
  SmallProduct one_;
  std::vector<std::pair<int64_t, int64_t>> begins_;  // of the matrices of a and b
};

}  // namespace onnxtorch
