#include "kernels/cpu/onednn/affine.h"

#include <ATen/ATen.h>

#include "kernels/cpu/onednn/inner_product.h"

namespace onnxtorch::onednn {

Affine::Affine(const at::Tensor& weight, const at::Tensor& bias, std::string name)
    : laid_(weight, std::move(name)),
      form_(laid_.form().t()),
      bias_(bias.defined() ? bias.contiguous() : bias),
      rows_(laid_, form_, bias_) {}

RunRows Affine::for_rows(int64_t rows) const {
  if (rows_.takes(rows)) {
    rows_.expect(rows);
    return [this, rows](const float* x, float* y) { rows_.run(x, y, rows, {}); };
  }
  const auto prepared = recent_.get(primitive_key().add(rows), [&] { return prepare(rows); });
  return [this, prepared](const float* x, float* y) {
    Call call(prepared->frames);
    call.with(DNNL_ARG_SRC, prepared->x, const_cast<float*>(x))
        .with(DNNL_ARG_WEIGHTS, prepared->weight.memory)
        .with(DNNL_ARG_DST, prepared->y, y);
    if (bias_.defined()) call.with(DNNL_ARG_BIAS, prepared->bias, bias_);
    call.run(prepared->primitive, prepared->scratchpad);
  };
}

Affine::Prepared Affine::prepare(int64_t rows) const {
  need_memory();
  const InnerProduct product(rows, form_, bias_.defined(), c10::kFloat);
  return {dnnl::inner_product_forward(product.description),
          product.source,
          product.result,
          product.bias,
          product.description.scratchpad_desc(),
          product.weight(laid_)};
}

}  // namespace onnxtorch::onednn
