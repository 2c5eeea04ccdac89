#include <ATen/ATen.h>
#include <ATen/Parallel.h>
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
        post_ops_(std::move(post_ops)),
        is_float_(linear.weight.scalar_type() == c10::kFloat && linear.result == c10::kFloat),
        has_relu_(!post_ops_.empty()),
        may_be_small_(is_float_ &&
                      (post_ops_.empty() || (post_ops_.size() == 1 && post_ops_[0].activation == "relu"))) {}

  at::Tensor run(const at::Tensor& x, at::TensorList operands) const override {
    const bool is_own = is_plain(x) && fits(x.sizes()) && x.is_contiguous();
    if (is_own && rows_if_small(x.sizes())) return small_product(x);
    if (is_own && is_row(x.sizes()) && panels().width) return apply(product_of_row(x), post_ops_, operands);
    return Fused::run(x, operands);
  }

  void expect(at::IntArrayRef sizes) const override {
    if (fits(sizes) && rows_if_small(sizes)) {
      blocks();
    } else if (!fits(sizes) || !is_row(sizes) || !panels().width) {
      Fused::expect(sizes);
    }
  }

 private:
  // The weight as oneDNN lays it out for one row, where that is in panels of whole columns.
  struct Panels {
    Laid weight;
    int64_t width = 0, apart = 0;  // in elements; no width where it is not
  };

  // oneDNN takes one row at 60 % of the speed that memory has.
  bool is_row(at::IntArrayRef sizes) const {
    return is_float_ && form_.numel() > 0 && c10::multiply_integers(sizes) == form_.size(0);
  }

  at::Tensor product_of_row(const at::Tensor& x) const {
    constexpr int64_t kLeastWork = 1 << 17;  // for one thread
    const int64_t in = form_.size(0), out = form_.size(1);
    const auto& [weight, width, apart] = panels();
    at::DimVector sizes(x.sizes());
    sizes.back() = out;
    at::Tensor y = at::empty(sizes, x.options());
    const float *const from = x.const_data_ptr<float>(),
                       *const first = static_cast<const float*>(weight.memory.get_data_handle()),
                       *const bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
    float* const to = y.mutable_data_ptr<float>();
    at::parallel_for(0, (out + width - 1) / width, std::max<int64_t>(1, kLeastWork / (in * width)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i) {
                         const int64_t column = i * width;
                         product_with_panel(from, to + column, in, first + i * apart, width,
                                            bias ? bias + column : nullptr, std::min(width, out - column));
                       }
                     });
    return y;
  }

  const Panels& panels() const {
    std::call_once(panels_made_, [&] {
      const auto description = described({1, form_.size(0)}, {1, form_.size(1)}, {});
      const dnnl::memory::desc wanted = description.weights_desc();
      const dnnl::memory::dims blocks = wanted.get_inner_blks(), of = wanted.get_inner_idxs();
      const bool is_in_panels = blocks.size() == 2 && of[0] == 1 && of[1] == 0 && blocks[1] % kColumns == 0 &&
                                blocks[1] <= kWidestPanel && wanted.get_strides()[1] == blocks[0] * blocks[1];
      if (is_in_panels) panels_ = {laid_weight(wanted), blocks[1], wanted.get_strides()[0]};
    });
    return panels_;
  }

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

  // Of matrices of these sizes.
  dnnl::inner_product_forward::primitive_desc described(at::IntArrayRef from, at::IntArrayRef to,
                                                        std::span<const PostOp> post_ops) const {
    const auto type = named(form_.scalar_type());
    const dnnl::memory::desc result(to.vec(), named(result_), Tag::ab);
    const dnnl::memory::desc bias =
        bias_.defined() ? dnnl::memory::desc({to[1]}, named(c10::kFloat), Tag::a) : dnnl::memory::desc();
    return {engine(),
            dnnl::prop_kind::forward_inference,
            {from.vec(), type, Tag::ab},
            {{to[1], from[1]}, type, Tag::any},
            bias,
            result,
            attributes(post_ops, result)};
  }

  Laid laid_weight(const dnnl::memory::desc& wanted) const {
    const at::Tensor weight = form_.t();
    return laid_.get(borrowed({weight.sizes().vec(), named(form_.scalar_type()), weight.strides().vec()}, weight),
                     wanted);
  }

  Prepared prepare(at::IntArrayRef from, std::span<const PostOp> post_ops) const override {
    const int64_t in = form_.size(0), out = form_.size(1), rows = c10::multiply_integers(from) / in;
    std::vector<int64_t> sizes = from.vec();
    sizes.back() = out;
    const auto description = described({rows, in}, {rows, out}, post_ops);
    if (is_reference(description)) return {};
    return {dnnl::inner_product_forward(description),
            description.src_desc(),
            description.dst_desc(),
            description.scratchpad_desc(),
            laid_weight(description.weights_desc()),
            sizes,
            strides(sizes)};
  }

  at::Tensor by_aten(const at::Tensor& x) const override {
    const at::Tensor y = at::matmul(x, laid_.plain());
    return bias_.defined() ? at::add(y, bias_.to(y.scalar_type())) : y;
  }

  const std::vector<PostOp> post_ops_;
  const bool is_float_, has_relu_, may_be_small_;
  mutable std::once_flag panels_made_;
  mutable Panels panels_;
  mutable std::once_flag blocks_made_;
  mutable at::Tensor blocks_;
};

}  // namespace
}  // namespace onednn

c10::intrusive_ptr<Packed> packed(const Linear& linear, std::vector<PostOp> post_ops) {
  return c10::make_intrusive<onednn::PackedLinear>(linear, std::move(post_ops));
}

}  // namespace onnxtorch
