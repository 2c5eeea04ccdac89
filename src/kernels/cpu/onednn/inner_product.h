// The product of rows and a weight, and what comes with it, as oneDNN's inner product.
#pragma once

#include "kernels/cpu/onednn/laid_weight.h"

namespace onnxtorch::onednn {

struct InnerProduct {
  // Describes rows @ weight + bias in the result's type, and the steps after it. The weight is [in, out], without
  // memory, and of the rows' type; `layout` is the one that it has, where oneDNN is not to choose.
  InnerProduct(int64_t rows, const at::Tensor& weight, bool has_bias, c10::ScalarType result_type,
               std::span<const PostOp> post_ops = {}, const dnnl::memory::desc& layout = {});

  // Gives the weight in the layout that is wanted.
  Laid weight(const LaidWeight& laid) const;

  at::Tensor columns;  // of the weight, as rows
  dnnl::memory::desc source, bias, result;
  dnnl::inner_product_forward::primitive_desc description;  // is_reference() where there is no fast one
};

}  // namespace onnxtorch::onednn
