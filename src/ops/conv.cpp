// Conv, ConvTranspose, DeformConv, CausalConvWithState, Col2Im.
#include <algorithm>

#include "ops/ops.h"
#include "ops/spatial.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

constexpr size_t kLargestRank = 3;  // ATen convolves over no more spatial dimensions

// The parts that Conv and ConvTranspose have in common. Where the number of spatial dimensions is not known, no
// attribute says anything of them, and ATen takes lists of one element for all.
struct Convolution {
  Value x, w, b;
  std::optional<size_t> rank;
  std::vector<int64_t> strides, dilations;
  Value kernel;  // int[]
  int64_t group;

  std::vector<int64_t> each(int64_t value) const { return std::vector<int64_t>(rank.value_or(1), value); }
  bool fits_aten() const { return !rank || (*rank >= 1 && *rank <= kLargestRank); }
};

// Fails where the sizes of the filters are known, and others than kernel_shape.
void check_kernel_shape(const Translator& t, const NodeView& n) {
  const auto sizes = t.known_sizes(n.input(1));
  if (!sizes || !n.has_attribute("kernel_shape")) return;
  const std::vector<int64_t> kernel = n.attr_ints("kernel_shape");
  const auto fits = [](int64_t size, const std::optional<int64_t>& known) { return !known || *known == size; };
  if (sizes->size() < 2 || !std::equal(kernel.begin(), kernel.end(), sizes->begin() + 2, sizes->end(), fits))
    n.fail("kernel_shape is not that of the filters");
}

// Tells whether a step over all channels of a side, as far as the sizes of the filters are known, is one that oneDNN's
// generator of code, ATen's too, can write where channels are innermost. Otherwise the thread could not use it any more.
bool fits_channels(const Translator& t, const NodeView& n, int64_t step) {
  constexpr int64_t kMostElements = 1 << 28;
  const auto sizes = t.known_sizes(n.input(1));
  if (step <= 1 || !sizes || sizes->size() < 2) return true;
  const int64_t most = kMostElements / step, group = std::max<int64_t>(n.attr_int("group"), 1);
  return sizes->at(0).value_or(1) <= most && sizes->at(1).value_or(1) <= most / group;
}

// Gives the attribute for each axis, or ones.
std::vector<int64_t> steps(const Translator& t, const NodeView& n, const char* name, size_t rank) {
  constexpr int64_t kMost = 1 << 15;
  std::vector<int64_t> given = per_axis(n, name, rank, 1);
  for (const int64_t step : given) {
    if (step > kMost) n.unsupported("with " + std::string(name) + " of more than " + std::to_string(kMost));
    if (!fits_channels(t, n, step)) n.unsupported("with so long " + std::string(name) + " over so many channels");
  }
  return given;
}

Convolution convolution(Translator& t, const NodeView& n) {
  check_kernel_shape(t, n);
  const auto rank = spatial_rank(t, n);
  const Value kernel = n.has_attribute("kernel_shape")
                           ? t.scalar(n.attr_ints("kernel_shape"))
                           : t.call("aten::slice", {t.call("aten::size", {n.tensor(1)}), 2, none});
  return {.x = rank ? of_spatial_rank(t, n, n.tensor(0), *rank) : n.tensor(0),
          .w = rank ? of_spatial_rank(t, n, n.tensor(1), *rank) : n.tensor(1),
          .b = n.tensor(2),
          .rank = rank,
          .strides = steps(t, n, "strides", rank.value_or(1)),
          .dilations = steps(t, n, "dilations", rank.value_or(1)),
          .kernel = kernel,
          .group = n.attr_int("group")};
}

}  // namespace

std::optional<AtenConvolution> aten_convolution(Translator& t, const NodeView& n) {
  const Convolution c = convolution(t, n);
  if (!c.fits_aten() || is_known_empty(t, c.x) || is_known_empty(t, c.w)) return {};
  const Value pads = window_pads(t, n, c.x, c.kernel, c.strides, c.dilations);
  const auto padding = symmetric(t, pads);
  const Value around = padding ? Value{} : t.call("inner_first", {pads});
  return {{c.x, c.w, around, c.strides, padding.value_or(c.each(0)), c.dilations, c.group}};
}

Values conv(Translator& t, const NodeView& n) {
  if (const auto c = aten_convolution(t, n)) {
    const Value x = c->pads.absent() ? c->x : t.call("aten::constant_pad_nd", {c->x, c->pads, 0});
    const std::vector<int64_t> output_padding(c->stride.size(), 0);
    return {t.call("aten::convolution",
                   {x, c->w, n.tensor(2), c->stride, c->padding, c->dilation, false, output_padding, c->groups})};
  }
  const Convolution c = convolution(t, n);
  const Value pads = window_pads(t, n, c.x, c.kernel, c.strides, c.dilations);
  return {t.call("conv_nd", {padded(t, c.x, pads, 0), c.w, c.b, c.strides, c.dilations, c.group})};
}

namespace {

// Gives the pads of ConvTranspose: auto_pad and output_shape set them so that the output gets its size.
Value conv_transpose_pads(Translator& t, const NodeView& n, const Convolution& c,
                          const std::vector<int64_t>& output_padding, const Value& pads_input) {
  const std::string auto_pad = n.attr_string("auto_pad");
  if (!auto_pad.starts_with("SAME") && !n.has_attribute("output_shape")) {
    return pads_input.absent() ? window_pads(t, n, c.x, c.kernel, c.strides, c.dilations) : pads_input;
  }
  const size_t given = n.has_attribute("output_shape") ? n.attr_ints("output_shape").size() : 0;
  if (given > 0 && given != c.strides.size() && given != c.strides.size() + 2)
    n.fail("output_shape must have " + std::to_string(c.strides.size()) + " elements");
  const Arg output_shape = n.has_attribute("output_shape") ? Arg(n.attr_ints("output_shape")) : Arg(none);
  return t.call("transposed_pads", {t.call("aten::size", {c.x}), c.kernel, c.strides, c.dilations, output_padding,
                                    output_shape, auto_pad == "SAME_UPPER"});
}

// Gives the output_padding by which ATen meets the pads; none where it cannot. ATen cuts both ends alike, and its
// output_padding then makes the end longer.
std::optional<std::vector<int64_t>> end_paddings(const Convolution& c, const std::vector<int64_t>& pads,
                                                 std::vector<int64_t> output_padding) {
  if (pads.size() != 2 * output_padding.size()) return {};
  for (size_t i = 0; i < output_padding.size(); ++i) {
    output_padding[i] += pads[i] - pads[output_padding.size() + i];
    if (pads[i] < 0 || output_padding[i] < 0 || output_padding[i] >= std::max(c.strides[i], c.dilations[i])) return {};
  }
  return output_padding;
}

}  // namespace

Values conv_transpose(Translator& t, const NodeView& n, const Value& pads_input) {
  const Convolution c = convolution(t, n);
  if (!c.fits_aten()) n.unsupported("over " + std::to_string(*c.rank) + " spatial dimensions");
  const std::vector<int64_t> output_padding = per_axis(n, "output_padding", c.rank.value_or(1), 0);
  const Value pads = conv_transpose_pads(t, n, c, output_padding, pads_input);
  if (const auto known = t.known_ints(pads)) {
    if (const auto at_end = end_paddings(c, *known, output_padding)) {
      const std::vector<int64_t> padding(known->begin(), known->begin() + static_cast<ptrdiff_t>(known->size() / 2));
      return {t.call("aten::convolution", {c.x, c.w, c.b, c.strides, padding, c.dilations, true, *at_end, c.group})};
    }
  }
  return {t.call("conv_transpose_padded", {c.x, c.w, c.b, c.strides, pads, output_padding, c.group, c.dilations})};
}

void register_conv_ops(Registry& r) {
  r.op("Conv").since(1, conv).reviewed_to(22);
  r.op("ConvTranspose")
      .since(1, [](Translator& t, const NodeView& n) { return conv_transpose(t, n, {}); })
      .reviewed_to(22);
  r.op("DeformConv").since(19, script("deform_conv")).reviewed_to(22);
  r.op("CausalConvWithState").since(27, script("causal_conv_with_state")).reviewed_to(27);
  r.op("Col2Im").since(18, script("col2im")).reviewed_to(18);
}

}  // namespace onnxtorch
