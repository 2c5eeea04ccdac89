// The steps that follow a product of few rows, as one pass over its result.
#pragma once

#include <span>

#include "kernels/cpu/packed/packed.h"
#include "kernels/simd/chain.h"

namespace onnxtorch {

class RowSteps {
 public:
  explicit RowSteps(std::span<const PostOp> steps);

  // Tells whether the steps begin with a relu, which is left to the product.
  bool has_relu() const { return has_relu_; }
  bool empty() const { return pass_.steps.empty(); }

  // Applies the steps to so many elements of y; each operand has as many, in the same layout.
  void run(float* y, int64_t count, std::span<const float* const> operands) const;

 private:
  bool has_relu_;
  chain::Loop pass_;
};

}  // namespace onnxtorch
