#include "kernels/cpu/onednn/inner_product.h"

#include <ATen/ATen.h>

namespace onnxtorch::onednn {

using Tag = dnnl::memory::format_tag;

InnerProduct::InnerProduct(int64_t rows, const at::Tensor& weight, bool has_bias, c10::ScalarType result_type,
                           std::span<const PostOp> post_ops, const dnnl::memory::desc& layout)
    : columns(weight.t()) {
  const int64_t out = columns.size(0), in = columns.size(1);
  const auto type = named(columns.scalar_type());
  source = {{rows, in}, type, Tag::ab};
  result = {{rows, out}, named(result_type), Tag::ab};
  if (has_bias) bias = {{out}, named(c10::kFloat), Tag::a};
  description = {engine(),
                 dnnl::prop_kind::forward_inference,
                 source,
                 layout.is_zero() ? dnnl::memory::desc({out, in}, type, Tag::any) : layout,
                 bias,
                 result,
                 attributes(post_ops, result),
                 /*allow_empty=*/true};
}

Laid InnerProduct::weight(const LaidWeight& laid) const {
  const dnnl::memory::desc given(columns.sizes().vec(), named(columns.scalar_type()), columns.strides().vec());
  return laid.get(borrowed(given, columns), description.weights_desc());
}

}  // namespace onnxtorch::onednn
