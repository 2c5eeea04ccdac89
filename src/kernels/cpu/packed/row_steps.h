// The steps that follow a product of rows: the first ones are left to the product, and the others are one pass over its
// result.
#pragma once

#include <span>

#include "kernels/cpu/packed/packed.h"
#include "kernels/simd/chain.h"

namespace onnxtorch {

class RowSteps {
 public:
  explicit RowSteps(std::span<const PostOp> steps);

  // Tell whether the steps begin with an addition, and go on with a relu. These are left to the product.
  bool adds() const { return adds_; }
  bool has_relu() const { return has_relu_; }

  // Applies the other steps to so many elements of y; each of their operands has as many, in the same layout.
  void run(float* y, int64_t count, std::span<const float* const> operands) const;

 private:
  bool adds_, has_relu_;
  chain::Loop pass_;
};

}  // namespace onnxtorch
