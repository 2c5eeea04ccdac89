#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>

#include "lower/onednn/fused.h"
#include "lower/onednn/inner_product.h"

namespace onnxtorch {
namespace onednn {
namespace {

class PackedLinear final : public Fused {
 public:
  PackedLinear(const Linear& linear, std::vector<PostOp> post_ops)
      : Fused(linear.weight, linear.bias, linear.weight.size(0), linear.result, std::move(post_ops)) {
    take_rows(form_, -1);
  }

 private:
  bool fits(at::IntArrayRef sizes) const override { return !sizes.empty() && sizes.back() == form_.size(0); }

  std::vector<int64_t> strides(at::IntArrayRef sizes) const override {
    const auto result = c10::contiguous_strides(sizes);
    return {result.begin(), result.end()};
  }

  Prepared prepare(at::IntArrayRef from, std::span<const PostOp> post_ops) const override {
    const int64_t in = form_.size(0), out = form_.size(1), rows = c10::multiply_integers(from) / in;
    std::vector<int64_t> sizes = from.vec();
    sizes.back() = out;
    const InnerProduct product(rows, form_, bias_.defined(), result_, post_ops);
    if (is_reference(product.description)) return {};
    return {dnnl::inner_product_forward(product.description),
            product.source,
            product.result,
            product.description.scratchpad_desc(),
            product.weight(laid_),
            sizes,
            strides(sizes)};
  }

  at::Tensor by_aten(const at::Tensor& x) const override {
    const at::Tensor y = at::matmul(x, laid_.plain());
    return bias_.defined() ? at::add(y, bias_.to(y.scalar_type())) : y;
  }
};

}  // namespace
}  // namespace onednn

c10::intrusive_ptr<Packed> packed(const Linear& linear, std::vector<PostOp> post_ops) {
  return c10::make_intrusive<onednn::PackedLinear>(linear, std::move(post_ops));
}

}  // namespace onnxtorch
