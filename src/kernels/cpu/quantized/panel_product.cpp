#include "kernels/cpu/quantized/panel_product.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "base/own_pages.h"
#include "base/parallel.h"
#include "base/work_memory.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/quantized/strips.h"

namespace onnxtorch {
namespace {

constexpr int64_t kProductsOfCost = 32;  // so many products take as long as an element, as parallel_for counts

const IntegerKernels& kernels() { return for_this_cpu<IntegerKernels>(); }

int64_t parts(int64_t count, int64_t size) { return (count + size - 1) / size; }

// Gives a matrix as a convolution with windows of one pixel.
Convolution as_convolution(const at::Tensor& matrix) {
  return {.weight = matrix.t().unsqueeze(2), .bias = {}, .stride = {1}, .padding = {0}, .dilation = {1}};
}

// Allocates zeros in pages of their own: the weight's memory goes back to the system as soon as it is given up, and so
// shall that of its copies.
at::Tensor zeros(at::IntArrayRef sizes) {
  return own_pages(c10::multiply_integers(sizes)).view(c10::kChar).view(sizes).zero_();
}

// Lays out a matrix of int8, in which each channel has a column, as the kernel takes it.
at::Tensor in_panels(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const int64_t pairs = parts(rows, 2), panels = parts(columns, kPanelColumns);
  const at::Tensor whole = zeros({pairs * 2, panels * kPanelColumns});
  whole.narrow(0, 0, rows).narrow(1, 0, columns).copy_(matrix);
  const at::Tensor result = zeros({panels, pairs, kPanelColumns, 2});
  result.copy_(whole.unflatten(0, {pairs, 2}).unflatten(2, {panels, kPanelColumns}).permute({2, 0, 3, 1}));
  return result.flatten().view(c10::kByte);
}

// Gives the matrix that `bytes` were made of.
at::Tensor from_panels(const at::Tensor& bytes, int64_t rows, int64_t columns) {
  const int64_t pairs = parts(rows, 2), panels = parts(columns, kPanelColumns);
  return bytes.view(c10::kChar)
      .view({panels, pairs, kPanelColumns, 2})
      .permute({1, 3, 0, 2})
      .reshape({2 * pairs, panels * kPanelColumns})
      .narrow(0, 0, rows)
      .narrow(1, 0, columns);
}

// Describes the windows of a convolution over images of these sizes.
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

// Gives one number for each column, and more, as a panel may begin at any column. `numbers` may be undefined.
at::Tensor for_panels(const at::Tensor& numbers, int64_t columns, float none) {
  const at::Tensor result = at::full({columns + kPanelColumns - 1}, none, c10::kFloat);
  if (numbers.defined()) result.narrow(0, 0, columns).copy_(numbers);
  return result;
}

// Tells whether the windows are pixels with the layout in which kernels take rows.
bool are_rows(const Patches& p) {
  const auto is_plain = [](const Windows& w) { return w.kernel == 1 && w.stride == 1 && w.padding == 0; };
  return is_plain(p.depth) && is_plain(p.rows) && is_plain(p.columns) && p.flip == 0 && p.taken % kStepRows == 0;
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
  const int64_t groups = convolution_.groups, out = weight.size(0) / groups;
  const at::Tensor taps_first = weight.flatten(2).unflatten(0, {groups, out}).permute({0, 3, 2, 1});
  return zeros(taps_first.sizes()).copy_(taps_first).flatten(1, 2);
}

at::Tensor PanelProduct::weight_of(const at::Tensor& matrices) const {
  if (is_matrix_) return matrices[0];
  const at::IntArrayRef sizes = convolution_.weight.sizes();
  return matrices.unflatten(1, {-1, sizes[1]}).permute({0, 3, 2, 1}).reshape(sizes);
}

at::Tensor PanelProduct::panels(const HeldWeight& weight) const {
  const int64_t columns = this->columns(), rows = convolution_.weight.numel() / columns;
  if (is_depthwise()) {
    const int64_t bytes = parts(columns, kPanelColumns) * parts(rows, 2) * kPanelPair;
    return weight.get(
        {.name = "panels",
         .lay = [](const at::Tensor& plain) { return in_panels(plain.flatten(1).t()); },
         .restore = [rows, columns, sizes = convolution_.weight.sizes().vec()](
                        const at::Tensor& laid) { return from_panels(laid, rows, columns).t().reshape(sizes); },
         .sound = [bytes](const at::Tensor& laid) { return laid.numel() == bytes; }});
  }
  const int64_t groups = convolution_.groups, strip = kernels().strip_columns;
  const std::array sizes{groups, rows, columns / groups};
  return weight.get({.name = "strips of " + std::to_string(strip),
                     .lay = [this, strip](const at::Tensor& plain) { return in_strips(matrices_of(plain), strip); },
                     .restore = [of = *this, sizes, strip](
                                    const at::Tensor& laid) { return of.weight_of(from_strips(laid, sizes, strip)); },
                     .sound = [sizes, strip](const at::Tensor& laid) { return are_strips(laid, sizes, strip); }});
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

at::Tensor PanelProduct::sums(const HeldWeight& weight, const at::Tensor& x) const {
  const at::Tensor y = empty_result(x, c10::kInt);
  auto* const to = y.data_ptr<int32_t>();
  const int64_t out = columns();
  multiply(weight, x, 0,
           [&](const int32_t* sums, int64_t apart, int64_t row, int64_t rows, int64_t column, int64_t columns) {
             for (int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * apart, columns, to + (row + r) * out + column);
           });
  return y;
}

at::Tensor PanelProduct::finished(const HeldWeight& weight, const at::Tensor& x, int64_t zero_point,
                                  const Scaled& as) const {
  constexpr float kNeutral = -0.0F;  // adding 0 would lose the sign of a zero
  const int64_t out = columns();
  const at::Tensor scales = for_panels(as.unit, out, 0), bias = for_panels(as.bias, out, kNeutral);
  Finish finish{scales.const_data_ptr<float>(), bias.const_data_ptr<float>(), 0, 0, 0};
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

void PanelProduct::multiply(const HeldWeight& weight, const at::Tensor& x, int64_t zero_point, const Put& put) const {
  const at::Tensor laid = panels(weight);
  const auto* const from = static_cast<const uint8_t*>(x.const_data_ptr());
  const int64_t in = x.size(-1);
  const std::vector<int64_t> line{1, in, x.numel() / in};
  const at::IntArrayRef sizes = is_matrix_ ? at::IntArrayRef(line) : x.sizes();
  const Patches p = patches(convolution_, sizes, x, zero_point);
  const int64_t windows = sizes[0] * p.windows();
  if (is_depthwise()) {
    multiply_channels(x, p, windows, laid, put);
  } else {
    multiply_patches(from, p, windows, laid, put);
  }
}

// Multiplies some rows by some panels at a time. The rows are copied, where they do not lie as kernels take them, and
// stay in the cache while they are multiplied by one panel after the other. They are about as many each time.
void PanelProduct::multiply_patches(const uint8_t* x, Patches p, int64_t windows, const at::Tensor& laid,
                                    const Put& put) const {
  constexpr int64_t kBytes = 1 << 17, kMostRows = 96, kPanels = 8;
  const bool in_place = are_rows(p);
  const int64_t step = kernels().rows_at_once, row = p.steps() * kStepRows, out = columns() / convolution_.groups;
  const int64_t rows = std::clamp(kBytes / row / step * step, 4 * step, kMostRows);
  const int64_t blocks = parts(windows, rows), panels = parts(out, kPanelColumns), pieces = parts(panels, kPanels);
  const auto first_of = [=, steps = parts(windows, step)](int64_t block) {
    return std::min(steps * block / blocks * step, windows);
  };
  const int64_t width = kernels().strip_columns, strips = parts(out, width);
  struct Memory {
    std::unique_ptr<uint8_t[]> rows;
    std::array<int32_t, kMostRows * kPanelColumns> sums;
  };
  const int64_t threads = threads_for(convolution_.groups * windows * row * out / kProductsOfCost);
  std::vector<Memory> memory(threads);
  share_out(convolution_.groups * blocks * pieces, threads, [&](int64_t i, int64_t thread) {
    const int64_t piece = i % pieces, block = i / pieces % blocks, group = i / pieces / blocks;
    const int64_t first = first_of(block), last = first_of(block + 1);
    Patches of = p;
    of.first = group * p.taken;
    const uint8_t* from = x + first * p.channels + of.first;
    auto& [copied, sums] = memory[thread];
    if (!in_place) {
      if (!copied) copied = std::make_unique_for_overwrite<uint8_t[]>(std::min(rows, windows) * row);
      kernels().copy_patches(x, of, first, last, copied.get());
      from = copied.get();
    }
    for (int64_t panel = piece * kPanels; panel < std::min((piece + 1) * kPanels, panels); ++panel) {
      const int64_t column = panel * kPanelColumns, columns = std::min(kPanelColumns, out - column);
      for (int64_t c = 0; c < columns; c += width) {
        const Strip strip = strip_at(laid, group * strips + (column + c) / width);
        int32_t start[kPanelColumns];
        for (int64_t k = 0; k < width; ++k) start[k] = -p.zero_point * strip.totals[k];
        kernels().sum_strip(from, in_place ? p.channels : row, last - first, strip, start, sums.data() + c);
      }
      put(sums.data(), kPanelColumns, first, last - first, group * out + column, columns);
    }
  });
}

void PanelProduct::multiply_channels(const at::Tensor& x, const Patches& p, int64_t windows, const at::Tensor& laid,
                                     const Put& put) const {
  const int64_t apart = parts(p.channels, kPanelColumns) * kPanelColumns, pairs = parts(p.taps(), 2);
  const std::vector<uint8_t> outside(apart + kPanelColumns, static_cast<uint8_t>(p.zero_point ^ p.flip));
  const at::Tensor totals =
      at::sum(laid.view(c10::kChar).view({-1, pairs, kPanelColumns, 2}), {1, 3}, false, c10::kInt);
  const at::Tensor start = totals.mul_(p.flip - p.zero_point);
  const ChannelWeight weight{static_cast<const int8_t*>(laid.const_data_ptr()), start.const_data_ptr<int32_t>(),
                             outside.data()};
  const auto* const from = static_cast<const uint8_t*>(x.const_data_ptr());
  const int64_t work = kWindowsAtOnce * p.taps() * p.channels;
  parallel_for(parts(windows, kWindowsAtOnce), work / kProductsOfCost, [&](int64_t begin, int64_t end) {
    std::vector<const uint8_t*> taps(kWindowsAtOnce * 2 * pairs);
    std::vector<int32_t> sums(kWindowsAtOnce * apart);
    for (int64_t first = begin * kWindowsAtOnce; first < std::min(end * kWindowsAtOnce, windows);
         first += kWindowsAtOnce) {
      const int64_t last = std::min(first + kWindowsAtOnce, windows);
      kernels().sum_channels(from, x.numel(), p, first, last, weight, taps.data(), sums.data());
      put(sums.data(), apart, first, last - first, 0, p.channels);
    }
  });
}

}  // namespace onnxtorch
