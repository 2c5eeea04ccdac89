#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>

#include <mutex>

#include "lower/onednn/fused.h"
#include "lower/row_kernels.h"

namespace onnxtorch {
namespace onednn {
namespace {

using Tag = dnnl::memory::format_tag;

class PackedLinear final : public Fused {
 public:
  PackedLinear(const Linear& linear, std::vector<PostOp> post_ops)
      : Fused(linear.weight, linear.bias, linear.weight.size(0), linear.result, post_ops),
        has_relu_(!post_ops.empty()),
        may_be_small_(linear.weight.scalar_type() == c10::kFloat && linear.result == c10::kFloat &&
                      (post_ops.empty() || (post_ops.size() == 1 && post_ops[0].activation == "relu"))) {}

  at::Tensor run(const at::Tensor& x, at::TensorList operands) const override {
    const bool is_small = is_plain(x) && fits(x.sizes()) && rows_if_small(x.sizes()) && x.is_contiguous();
    return is_small ? small_product(x) : Fused::run(x, operands);
  }

  void expect(at::IntArrayRef sizes) const override {
    if (fits(sizes) && rows_if_small(sizes)) {
      blocks();
    } else {
      Fused::expect(sizes);
    }
  }

 private:
  // How many rows there are, where less time goes into the product than into the call of a primitive; else 0.
  int64_t rows_if_small(at::IntArrayRef sizes) const {
    constexpr int64_t kMostRows = 4, kMostWork = 1 << 17;
    const int64_t rows = c10::multiply_integers(sizes.slice(0, sizes.size() - 1));
    return may_be_small_ && rows <= kMostRows && rows * form_.numel() <= kMostWork ? rows : 0;
  }

  at::Tensor small_product(const at::Tensor& x) const {
    at::DimVector sizes(x.sizes());
    sizes.back() = form_.size(1);
    at::Tensor y = at::empty(sizes, x.options());
    product_rows(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), rows_if_small(x.sizes()), form_.size(0),
                 form_.size(1), blocks().const_data_ptr<float>(), has_relu_);
    return y;
  }

  // The weight and the bias as product_rows takes them.
  const at::Tensor& blocks() const {
    std::call_once(blocks_made_, [&] {
      const int64_t in = form_.size(0), out = form_.size(1), count = (out + kColumns - 1) / kColumns;
      const at::Tensor padded = at::zeros({in + 1, count * kColumns}, c10::kFloat);
      padded.narrow(0, 1, in).narrow(1, 0, out).copy_(laid_.plain());
      if (bias_.defined()) padded.select(0, 0).narrow(0, 0, out).copy_(bias_);
      blocks_ = padded.view({in + 1, count, kColumns}).transpose(0, 1).contiguous();
    });
    return blocks_;
  }

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

  const bool has_relu_, may_be_small_;
  mutable std::once_flag blocks_made_;
  mutable at::Tensor blocks_;
};

}  // namespace
}  // namespace onednn

c10::intrusive_ptr<Packed> packed(const Linear& linear, std::vector<PostOp> post_ops) {
  return c10::make_intrusive<onednn::PackedLinear>(linear, std::move(post_ops));
}

}  // namespace onnxtorch
