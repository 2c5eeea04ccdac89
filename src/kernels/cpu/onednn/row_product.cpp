#include "kernels/cpu/onednn/row_product.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

#include <algorithm>

#include "base/parallel.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/onednn/inner_product.h"
#include "kernels/simd/row_product.h"

namespace onnxtorch::onednn {

RowProduct::RowProduct(const LaidWeight& laid, at::Tensor form, at::Tensor bias)
    : laid_(laid), form_(std::move(form)), bias_(std::move(bias)), in_(form_.size(0)), out_(form_.size(1)) {}

bool RowProduct::is_small(int64_t rows) const {
  constexpr int64_t kMostRows = 128, kMostWork = 1 << 19, kFewRows = 4, kMostWorkOfFewRows = 1 << 17;
  const int64_t columns = (out_ + kColumnsOfPanel - 1) / kColumnsOfPanel * kColumnsOfPanel;
  return rows <= kMostRows && rows * in_ * columns <= (rows <= kFewRows ? kMostWorkOfFewRows : kMostWork);
}

void RowProduct::expect(int64_t rows) const {
  if (is_small(rows)) {
    blocks();
  } else {
    panels();
  }
}

at::Tensor RowProduct::run(const at::Tensor& rows, int64_t dim, bool relu) const {
  at::DimVector sizes(rows.sizes());
  sizes[at::maybe_wrap_dim(dim, rows.dim())] = out_;
  at::Tensor y = at::empty(sizes, rows.options());
  run(rows.const_data_ptr<float>(), y.mutable_data_ptr<float>(), rows.numel() / in_, relu);
  return y;
}

void RowProduct::run(const float* x, float* y, int64_t rows, bool relu) const {
  if (is_small(rows)) return take_blocks(x, y, rows, relu);
  take_panels(x, y);
  for (int64_t i = 0; relu && i < out_; ++i) y[i] = y[i] < 0 ? 0 : y[i];
}

void RowProduct::take_blocks(const float* x, float* y, int64_t rows, bool relu) const {
  constexpr int64_t kVeryFewRows = 2;
  constexpr int64_t kProductsOfCost = 32;  // so many products take as long as an element, as parallel_for counts
  const auto* const panels = blocks().const_data_ptr<float>();
  const auto* const bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  const auto& kernels = for_this_cpu<RowProductKernels>();
  const auto multiply = rows <= kVeryFewRows ? kernels.product_of_few_rows : kernels.product_of_rows;
  parallel_for(rows, in_ * out_ / kProductsOfCost, [&](int64_t begin, int64_t end) {
    multiply(x + begin * in_, y + begin * out_, end - begin, in_, out_, panels, bias, relu);
  });
}

void RowProduct::take_panels(const float* x, float* y) const {
  constexpr int64_t kWeightsOfCost = 4;  // so many weights take as long as an element, as threads_for counts
  const auto& [weight, width, apart] = panels();
  const auto* const first = static_cast<const float*>(weight.memory.get_data_handle());
  const auto* const bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  const int64_t count = (out_ + width - 1) / width;
  const auto& kernels = for_this_cpu<RowProductKernels>();
  const int64_t threads = threads_for(out_ * in_ / kWeightsOfCost);
  share_out(count, threads, [&, width = width, apart = apart](int64_t i, int64_t) {
    const int64_t column = i * width;
    kernels.product_with_panel(x, y + column, in_, first + i * apart, width, bias ? bias + column : nullptr,
                               std::min(width, out_ - column));
  });
}

const at::Tensor& RowProduct::blocks() const {
  blocks_made_([&] {
    const int64_t count = (out_ + kColumnsOfPanel - 1) / kColumnsOfPanel;
    const at::Tensor padded = at::zeros({in_, count * kColumnsOfPanel}, c10::kFloat);
    padded.narrow(1, 0, out_).copy_(at::as_strided(laid_.plain(), form_.sizes(), form_.strides()));
    blocks_ = padded.view({in_, count, kColumnsOfPanel}).transpose(0, 1).contiguous();
  });
  return blocks_;
}

const RowProduct::Panels& RowProduct::panels() const {
  panels_made_([&] {
    const InnerProduct product(1, form_, /*has_bias=*/false, c10::kFloat);
    if (is_reference(product.description)) return;
    const dnnl::memory::desc wanted = product.description.weights_desc();
    const dnnl::memory::dims blocks = wanted.get_inner_blks(), of = wanted.get_inner_idxs();
    const bool is_in_panels = blocks.size() == 2 && of[0] == 1 && of[1] == 0 && is_panel(blocks[1]) &&
                              wanted.get_strides()[1] == blocks[0] * blocks[1];
    if (!is_in_panels) return;
    panels_ = {product.weight(laid_), blocks[1], wanted.get_strides()[0]};
  });
  return panels_;
}

}  // namespace onnxtorch::onednn
