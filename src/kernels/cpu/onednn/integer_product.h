// Convolutions and products of whole numbers of 8 bits with constant weights: oneDNN adds up in int32, exactly, or on
// CPUs where it cannot a kernel of our own; one pass over the sums accounts for zero points, and computes what follows.
#pragma once

#include <vector>

#include "kernels/cpu/onednn/fused.h"

namespace onnxtorch::onednn {

// The primitive for x @ weight over rows of numbers of 8 bits; `sizes` are those of x. A float bias is [1, out]. None
// where oneDNN has only its reference implementation.
Prepared prepared_product(const at::Tensor& weight, at::IntArrayRef sizes, dnnl::memory::data_type source,
                          dnnl::memory::data_type result, bool has_bias, const dnnl::primitive_attr& attributes,
                          const LaidWeight& laid);

}  // namespace onnxtorch::onednn
