// A softmax between two products of matrices becomes ATen's scaled_dot_product_attention, where its kernels for CUDA
// give what the products would.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void fuse_attention(Program& program);

}  // namespace onnxtorch
