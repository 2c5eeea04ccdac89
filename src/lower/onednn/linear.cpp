#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>

#include "lower/onednn/fused.h"

namespace onnxtorch {
namespace onednn {
namespace {

using Tag = dnnl::memory::format_tag;

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
    const auto type = named(form_.scalar_type());
    const dnnl::memory::desc source({rows, in}, type, Tag::ab), result({rows, out}, named(result_), Tag::ab);
    const dnnl::memory::desc bias =
        bias_.defined() ? dnnl::memory::desc({out}, named(c10::kFloat), Tag::a) : dnnl::memory::desc();
    const dnnl::inner_product_forward::primitive_desc description(engine(), dnnl::prop_kind::forward_inference, source,
                                                                  {{out, in}, type, Tag::any}, bias, result,
                                                                  attributes(post_ops, result));
    if (is_reference(description)) return {};
    const at::Tensor weight = form_.t();
    const dnnl::memory::desc given({out, in}, type, weight.strides().vec());
    return {dnnl::inner_product_forward(description),
            source,
            result,
            description.scratchpad_desc(),
            laid_.get(borrowed(given, weight), description.weights_desc()),
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
