// ATen's scaled_dot_product_attention, where its kernels for CUDA give what the products would.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

// The operator itself becomes one that computes the products where they do not, and gets masks that they understand.
void take_masks(Program& program);

// A softmax between two products of matrices becomes the operator.
void fuse_attention(Program& program);

}  // namespace onnxtorch
