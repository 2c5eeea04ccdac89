#include "kernels/cpu/onednn/row_product.h"

#include <ATen/ATen.h>

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

bool RowProduct::takes_panels(int64_t rows) const {
  if (rows == 1) return panels().width > 0;
  if (!for_this_cpu<RowProductKernels>().product_of_rows_with_panel) return false;
  return panels().width > 0 && panels().width <= kWidestOfRows;
}

void RowProduct::expect(int64_t rows) const {
  if (is_small(rows)) {
    blocks();
  } else {
    panels();
  }
}

void RowProduct::run(const float* x, float* y, int64_t rows, const Then& then) const {
  if (adds_in_place(rows)) return take_panels(x, y, rows, then);
  const bool relu_at_once = then.relu && !then.addend;
  if (is_small(rows)) {
    take_blocks(x, y, rows, relu_at_once);
    if (!then.addend) return;
  } else {
    take_panels(x, y);
  }
  for (int64_t i = 0; then.addend && i < rows * out_; ++i) y[i] += then.addend[i];
  for (int64_t i = 0; then.relu && i < rows * out_; ++i) y[i] = y[i] < 0 ? 0 : y[i];
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

// Multiplies parts of the rows by some columns, which threads take as they come.
void RowProduct::take_panels(const float* x, float* y, int64_t rows, const Then& then) const {
  constexpr int64_t kProductsOfCost = 16;  // so many products take as long as an element, as threads_for counts
  constexpr int64_t kTogether = 2;         // panels, of as many columns as whole cache lines have
  constexpr int64_t kMostRows = 256, kLeastRows = 16, kPartsOfThread = 8;
  const auto& [weight, width, apart] = panels();
  const auto* const first = static_cast<const float*>(weight.memory.get_data_handle());
  const auto* const bias = bias_.defined() ? bias_.const_data_ptr<float>() : nullptr;
  const auto multiply = for_this_cpu<RowProductKernels>().product_of_rows_with_panel;
  const int64_t threads = threads_for(rows * in_ * out_ / kProductsOfCost);
  const int64_t count = (out_ + width - 1) / width, groups = (count + kTogether - 1) / kTogether;
  const int64_t wanted = threads > 1 ? (kPartsOfThread * threads + groups - 1) / groups : 1;
  const int64_t step = std::clamp((rows + wanted - 1) / wanted, kLeastRows, kMostRows);
  const int64_t blocks = (rows + step - 1) / step;
  share_out(groups * blocks, threads, [&, width = width, apart = apart](int64_t part, int64_t) {
    const int64_t panel = part / blocks * kTogether, row = part % blocks * step;
    for (int64_t i = panel; i < std::min(panel + kTogether, count); ++i) {
      const int64_t column = i * width;
      const int64_t at = row * out_ + column;
      multiply({.x = x + row * in_,
                .rows = std::min(step, rows - row),
                .in = in_,
                .panel = first + i * apart,
                .width = width,
                .bias = bias ? bias + column : nullptr,
                .addend = then.addend ? then.addend + at : nullptr,
                .relu = then.relu,
                .y = y + at,
                .y_apart = out_,
                .columns = std::min(width, out_ - column)});
    }
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
