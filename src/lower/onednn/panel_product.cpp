#include "lower/onednn/panel_product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <memory>

#include "kernels/own_pages.h"
#include "kernels/work_memory.h"
#include "lower/cpu_features.h"
#include "lower/onednn/convolution.h"

namespace onnxtorch::onednn {
namespace {

constexpr int64_t kLeastWork = 1 << 20;  // products for one thread

const IntegerKernels& kernels() { return for_this_cpu<IntegerKernels>(); }

int64_t parts(int64_t count, int64_t size) { return (count + size - 1) / size; }

// A matrix as a convolution with windows of one pixel.
Convolution as_convolution(const at::Tensor& matrix) {
  return {.weight = matrix.t().unsqueeze(2), .bias = {}, .stride = {1}, .padding = {0}, .dilation = {1}};
}

// The weight's memory goes back to the system as soon as it is given up, and so shall that of its copies.
at::Tensor zeros(at::IntArrayRef sizes) {
  return own_pages(c10::multiply_integers(sizes)).view(c10::kChar).view(sizes).zero_();
}

// Of matrices of int8, as the kernels take them.
at::Tensor in_panels(const at::Tensor& matrices) {
  const int64_t count = matrices.size(0), rows = matrices.size(1), columns = matrices.size(2);
  const int64_t pairs = parts(rows, 2), panels = parts(columns, kPanelColumns);
  at::Tensor whole = matrices;
  if (rows % 2 != 0 || columns % kPanelColumns != 0) {
    whole = zeros({count, pairs * 2, panels * kPanelColumns});
    whole.narrow(1, 0, rows).narrow(2, 0, columns).copy_(matrices);
  }
  const at::Tensor result = zeros({count, panels, pairs, kPanelColumns, 2});
  result.copy_(whole.unflatten(1, {pairs, 2}).unflatten(3, {panels, kPanelColumns}).permute({0, 3, 1, 4, 2}));
  return result.flatten().view(c10::kByte);
}

// What `bytes` were made of.
at::Tensor from_panels(const at::Tensor& bytes, int64_t count, int64_t rows, int64_t columns) {
  const int64_t pairs = parts(rows, 2), panels = parts(columns, kPanelColumns);
  return bytes.view(c10::kChar)
      .view({count, panels, pairs, kPanelColumns, 2})
      .permute({0, 2, 4, 1, 3})
      .reshape({count, 2 * pairs, panels * kPanelColumns})
      .narrow(1, 0, rows)
      .narrow(2, 0, columns);
}

// The windows of a convolution over images of these sizes.
Patches patches(const Convolution& c, at::IntArrayRef sizes, const at::Tensor& x, int64_t zero_point) {
  const std::vector<int64_t> results = result_sizes(c, sizes);
  std::array dimensions{kNoWindows, kNoWindows, kNoWindows};
  const size_t rank = c.stride.size();
  for (size_t i = 0; i < rank; ++i) {
    dimensions[3 - rank + i] = {sizes[i + 2],  c.weight.size(static_cast<int64_t>(i) + 2),
                                c.stride[i],   c.padding[i],
                                c.dilation[i], results[i + 2]};
  }
  const bool is_signed = x.scalar_type() == c10::kChar;
  return {.depth = dimensions[0],
          .rows = dimensions[1],
          .columns = dimensions[2],
          .channels = sizes[1],
          .first = 0,
          .taken = c.weight.size(1),
          .flip = static_cast<uint8_t>(is_signed ? 128 : 0),
          .zero_point = static_cast<int16_t>(zero_point + (is_signed ? 128 : 0))};
}

}  // namespace

PanelProduct::PanelProduct(Convolution convolution) : convolution_(std::move(convolution)), is_matrix_(false) {}

PanelProduct::PanelProduct(const at::Tensor& matrix) : convolution_(as_convolution(matrix)), is_matrix_(true) {}

bool PanelProduct::is_depthwise() const {
  return convolution_.groups > 1 && convolution_.weight.size(1) == 1 &&
         convolution_.weight.size(0) == convolution_.groups;
}

at::Tensor PanelProduct::matrices_of(const at::Tensor& weight) const {
  if (is_matrix_) return weight.unsqueeze(0);
  if (is_depthwise()) return weight.flatten(1).t().unsqueeze(0);
  const int64_t groups = convolution_.groups, out = weight.size(0) / groups;
  const at::Tensor taps_first = weight.flatten(2).unflatten(0, {groups, out}).permute({0, 3, 2, 1});
  return zeros(taps_first.sizes()).copy_(taps_first).flatten(1, 2);
}

at::Tensor PanelProduct::weight_of(const at::Tensor& matrices) const {
  if (is_matrix_) return matrices[0];
  const at::IntArrayRef sizes = convolution_.weight.sizes();
  if (is_depthwise()) return matrices[0].t().reshape(sizes);
  return matrices.unflatten(1, {-1, sizes[1]}).permute({0, 3, 2, 1}).reshape(sizes);
}

at::Tensor PanelProduct::panels(const LaidWeight& weight) const {
  const int64_t count = is_depthwise() ? 1 : convolution_.groups;
  const int64_t rows = convolution_.weight.numel() / this->columns(), columns = this->columns() / count;
  const int64_t bytes = count * parts(columns, kPanelColumns) * parts(rows, 2) * kPanelPair;
  return weight.get(
      bytes, [this](const at::Tensor& plain) { return in_panels(matrices_of(plain)); },
      [of = *this, count, rows, columns](const at::Tensor& laid) {
        return of.weight_of(from_panels(laid, count, rows, columns));
      });
}

at::Tensor PanelProduct::empty_result(const at::Tensor& x, c10::ScalarType type) const {
  if (!is_matrix_) {
    const std::vector<int64_t> sizes = result_sizes(convolution_, x.sizes());
    return work_tensor(sizes, channels_last_strides(sizes), type);
  }
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = columns();
  return work_tensor(sizes, type);
}

at::Tensor PanelProduct::sums(const LaidWeight& weight, const at::Tensor& x) const {
  const at::Tensor y = empty_result(x, c10::kInt);
  auto* const to = y.data_ptr<int32_t>();
  const int64_t out = columns();
  multiply(weight, x, 0,
           [&](const int32_t* sums, int64_t apart, int64_t row, int64_t rows, int64_t column, int64_t columns) {
             for (int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * apart, columns, to + (row + r) * out + column);
           });
  return y;
}

at::Tensor PanelProduct::finished(const LaidWeight& weight, const at::Tensor& x, int64_t zero_point,
                                  const Scaled& as) const {
  constexpr float kNeutral = -0.0F;  // adding 0 would lose the sign of a zero
  const int64_t out = columns();
  const at::Tensor unit = as.unit.expand({out}).contiguous();
  const at::Tensor bias = as.bias.defined() ? as.bias : at::full({out}, kNeutral, c10::kFloat);
  Finish finish{unit.const_data_ptr<float>(), bias.const_data_ptr<float>(), 0, 0, 0};
  if (const auto& to = as.steps) {
    finish.low = static_cast<float>(to->low - to->zero_point);
    finish.high = static_cast<float>(to->high - to->zero_point);
    finish.zero_point = static_cast<int32_t>(to->zero_point);
  }
  const at::Tensor y = empty_result(x, as.steps ? as.steps->type : c10::kFloat);
  void* const to = y.data_ptr();
  multiply(weight, x, zero_point,
           [&](const int32_t* sums, int64_t apart, int64_t row, int64_t rows, int64_t column, int64_t columns) {
             Finish here = finish;
             here.scales += column;
             here.bias += column;
             const int64_t at = row * out + column;
             if (as.steps) {
               kernels().finish_bytes(sums, apart, rows, columns, here, static_cast<uint8_t*>(to) + at, out);
             } else {
               kernels().finish_floats(sums, apart, rows, columns, here, static_cast<float*>(to) + at, out);
             }
           });
  return y;
}

void PanelProduct::multiply(const LaidWeight& weight, const at::Tensor& x, int64_t zero_point, const Put& put) const {
  const at::Tensor laid = panels(weight);
  const auto* const from = static_cast<const uint8_t*>(x.const_data_ptr());
  const auto* const panels = static_cast<const int8_t*>(laid.const_data_ptr());
  const int64_t in = x.size(-1);
  const std::vector<int64_t> line{1, in, x.numel() / in};
  const at::IntArrayRef sizes = is_matrix_ ? at::IntArrayRef(line) : x.sizes();
  const Patches p = patches(convolution_, sizes, x, zero_point);
  const int64_t windows = sizes[0] * p.windows();
  if (is_depthwise()) return multiply_channels(from, p, windows, panels, put);
  multiply_patches(from, p, windows, panels, put);
}

// Some rows at a time are widened, and stay in the cache while they are multiplied by one panel after the other.
void PanelProduct::multiply_patches(const uint8_t* x, Patches p, int64_t windows, const int8_t* panels,
                                    const Put& put) const {
  constexpr int64_t kNumbers = 1 << 17, kMostRows = 96;
  const int64_t step = kernels().rows_at_once, row = 2 * p.pairs(), out = columns() / convolution_.groups;
  const int64_t rows = std::clamp(kNumbers / row / step * step, 4 * step, kMostRows);
  const int64_t blocks = parts(windows, rows), count = parts(out, kPanelColumns);
  const int64_t work = std::min(rows, windows) * row * kPanelColumns;
  at::parallel_for(0, convolution_.groups * blocks * count, std::max<int64_t>(kLeastWork / work, 1),
                   [&](int64_t begin, int64_t end) {
                     const auto widened = std::make_unique_for_overwrite<int16_t[]>(std::min(rows, windows) * row);
                     int32_t sums[kMostRows * kPanelColumns];
                     Patches of = p;
                     for (int64_t i = begin; i < end; ++i) {
                       const int64_t panel = i % count, block = i / count % blocks, group = i / count / blocks;
                       const int64_t first = block * rows, last = std::min(first + rows, windows);
                       of.first = group * p.taken;
                       if (i == begin || panel == 0) kernels().widen_patches(x, of, first, last, widened.get());
                       const int64_t column = panel * kPanelColumns;
                       kernels().sum_panel(widened.get(), last - first, p.pairs(),
                                           panels + (group * count + panel) * p.pairs() * kPanelPair, sums);
                       put(sums, kPanelColumns, first, last - first, group * out + column,
                           std::min(kPanelColumns, out - column));
                     }
                   });
}

void PanelProduct::multiply_channels(const uint8_t* x, const Patches& p, int64_t windows, const int8_t* panels,
                                     const Put& put) const {
  constexpr int64_t kRows = 4;
  const int64_t apart = parts(p.channels, kPanelColumns) * kPanelColumns;
  const std::vector<uint8_t> outside(p.channels, static_cast<uint8_t>(p.zero_point ^ p.flip));
  const int64_t work = kRows * p.taps() * p.channels;
  at::parallel_for(0, parts(windows, kRows), std::max<int64_t>(kLeastWork / work, 1), [&](int64_t begin, int64_t end) {
    std::vector<const uint8_t*> taps(p.taps() + 1);
    std::vector<int32_t> sums(kRows * apart);
    for (int64_t first = begin * kRows; first < std::min(end * kRows, windows); first += kRows) {
      const int64_t last = std::min(first + kRows, windows);
      kernels().sum_channels(x, p, first, last, panels, outside.data(), taps.data(), sums.data());
      put(sums.data(), apart, first, last - first, 0, p.channels);
    }
  });
}

}  // namespace onnxtorch::onednn
