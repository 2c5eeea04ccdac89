#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>

#include "kernels/cpu/onednn/fused.h"
#include "kernels/cpu/onednn/inner_product.h"
#include "kernels/cpu/onednn/operators.h"

namespace onnxtorch {
namespace onednn {
namespace {

// Gives how many of the rows fill whole blocks. oneDNN divides rows into blocks: of their largest divisor not above 64,
// or of 64 where that is too small. Threads get equally many blocks, so that one whose last block is smaller waits for
// the others.
int64_t in_whole_blocks(int64_t rows) {
  constexpr int64_t kMost = 64, kLeast = 6;
  for (int64_t block = kMost; block >= kLeast; --block)
    if (rows % block == 0) return rows;
  return rows < kMost ? rows : rows / kMost * kMost;
}

class PackedLinear final : public Fused {
 public:
  PackedLinear(const Linear& linear, std::vector<PostOp> post_ops)
      : Fused(linear.weight, linear.bias, linear.weight.size(0), linear.result, std::move(post_ops)) {
    take_rows(form_, -1);
  }

 private:
  // Tells whether a product is so small that making its primitive takes about as long as running it.
  bool is_small(int64_t rows) const { return rows * form_.numel() < 1 << 24; }

  bool fits(at::IntArrayRef sizes) const override { return !sizes.empty() && sizes.back() == form_.size(0); }

  std::vector<int64_t> strides(at::IntArrayRef sizes) const override {
    const auto result = c10::contiguous_strides(sizes);
    return {result.begin(), result.end()};
  }

  // Divides few rows, whose number is open, into as many 256s, 16s and single ones as there are.
  std::vector<at::DimVector> parts(at::IntArrayRef sizes) const override {
    int64_t rows = c10::multiply_integers(sizes) / form_.size(0);
    if (!is_small(rows)) return {};
    std::vector<at::DimVector> parts;
    for (const int64_t unit : {256, 16, 1}) {
      if (const int64_t count = rows / unit * unit; count > 0) parts.push_back({count, form_.size(0)});
      rows %= unit;
    }
    return parts.size() > 1 ? parts : std::vector<at::DimVector>();
  }

  Prepared prepare(at::IntArrayRef from, std::span<const PostOp> post_ops) const override {
    const int64_t in = form_.size(0), out = form_.size(1), rows = c10::multiply_integers(from) / in;
    std::vector<int64_t> sizes = from.vec();
    sizes.back() = out;
    const int64_t first = at::get_num_threads() > 1 ? in_whole_blocks(rows) : rows;
    const auto described = [&](const dnnl::memory::desc& layout) {
      return InnerProduct(first, form_, bias_.defined(), result_, post_ops, layout);
    };
    // A small product takes the weight in the layout that it has.
    InnerProduct product = described(is_small(rows) ? laid_.first() : dnnl::memory::desc());
    if (is_reference(product.description)) product = described({});
    if (is_reference(product.description)) return {};
    const Laid weight = product.weight(laid_);
    const auto of = [&](const InnerProduct& part) {
      return Prepared{dnnl::inner_product_forward(part.description),
                      part.source,
                      part.result,
                      part.description.scratchpad_desc(),
                      weight,
                      sizes,
                      strides(sizes)};
    };
    Prepared result = of(product);
    if (first == rows) return result;
    const InnerProduct rest(rows - first, form_, bias_.defined(), result_, post_ops,
                            product.description.weights_desc());
    if (is_reference(rest.description)) return {};
    result.rest = std::make_shared<Prepared>(of(rest));
    return result;
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
