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
  // For tensors of floats that have sizes and strides like these, and as many dimensions; none where the matrices are
  // not small, or where a's rows, or neither the rows nor the columns of b, lie side by side.
  static std::optional<SmallProducts> of(const at::Tensor& a, const at::Tensor& b);

  // Whether all of it takes less time than to call a primitive of oneDNN.
  bool are_few() const;

  // result = a @ b, contiguous.
  void compute(const float* a, const float* b, float* result) const;

 private:
  SmallProduct one_;
  std::vector<std::pair<int64_t, int64_t>> begins_;  // of the matrices of a and b
};

}  // namespace onnxtorch
