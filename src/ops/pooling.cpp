// AveragePool, MaxPool, LpPool, their global forms, MaxUnpool, MaxRoiPool, RoiAlign.
#include <algorithm>
#include <limits>

#include "kernels/standard/most_padding.h"
#include "ops/ops.h"
#include "ops/spatial.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

struct Pool {
  Value x;
  std::vector<int64_t> kernel, strides, dilations;
  Value pads;  // int[]
  bool ceil_mode;

  size_t rank() const { return kernel.size(); }
  std::string aten(const std::string& name) const { return "aten::" + name + std::to_string(rank()) + "d"; }
};

Pool pool(Translator& t, const NodeView& n) {
  const std::vector<int64_t> kernel = n.attr_ints("kernel_shape");
  Pool p{.x = of_spatial_rank(t, n, n.tensor(0), kernel.size()),
         .kernel = kernel,
         .strides = per_axis(n, "strides", kernel.size(), 1),
         .dilations = per_axis(n, "dilations", kernel.size(), 1),
         .pads = {},
         .ceil_mode = n.has_attribute("ceil_mode") && n.attr_int("ceil_mode") != 0};
  p.pads = window_pads(t, n, p.x, t.scalar(kernel), p.strides, p.dilations);
  // With auto_pad, the output is as large by either rounding.
  if (n.attr_string("auto_pad") != "NOTSET") p.ceil_mode = false;
  return p;
}

// Gives the pads with which no window hangs over the end, as int[]. No window that moves by one element does.
Value fitting_pads(Translator& t, const Pool& p) {
  if (std::ranges::all_of(p.strides, [](int64_t stride) { return stride == 1; })) return p.pads;
  return t.call("fitting_pads", {t.call("aten::size", {p.x}), p.kernel, p.strides, p.dilations, p.pads, p.ceil_mode});
}

// Gives the padding where ATen can do it: ATen pools over up to three dimensions, and pads both ends alike, by up to
// half a window.
std::optional<std::vector<int64_t>> aten_padding(const Translator& t, const Pool& p) {
  if (p.rank() < 1 || p.rank() > 3 || is_known_empty(t, p.x)) return {};
  auto padding = symmetric(t, p.pads);
  for (size_t i = 0; padding && i < p.rank(); ++i) {
    if (2 * (*padding)[i] > p.kernel[i]) return {};
  }
  return padding;
}

}  // namespace

Values average_pool(Translator& t, const NodeView& n, bool overhang_is_padding) {
  Pool p = pool(t, n);
  const bool count_include_pad = n.has_attribute("count_include_pad") && n.attr_int("count_include_pad") != 0;
  if (overhang_is_padding && count_include_pad && p.ceil_mode) {
    p.pads = fitting_pads(t, p);
    p.ceil_mode = false;
  }
  const bool dilated = std::ranges::any_of(p.dilations, [](int64_t d) { return d != 1; });
  const bool half_3d = p.rank() == 3 && info(n.element(0)).bits == 16;  // ATen lacks it on the CPU
  if (const auto padding = aten_padding(t, p); padding && !dilated && !half_3d) {
    return {t.call(p.aten("avg_pool"), {p.x, p.kernel, p.strides, *padding, p.ceil_mode, count_include_pad})};
  }
  const Value fitting = fitting_pads(t, p);
  const Value counts = t.call("window_counts", {t.call("aten::size", {p.x}), p.kernel, p.strides, p.dilations, p.pads,
                                                fitting, count_include_pad, t.device()});
  const bool sums_by_aten = (p.rank() == 2 || p.rank() == 3) && !dilated && !is_known_empty(t, p.x) &&
                            (n.element(0) == ElementType::Float || n.element(0) == ElementType::Double);
  if (sums_by_aten) {
    const Value sums = t.call(p.aten("avg_pool"), {padded(t, p.x, fitting, 0), p.kernel, p.strides,
                                                   std::vector<int64_t>(p.rank(), 0), false, true, 1});
    return {t.call("aten::div", {sums, counts})};
  }
  return {t.call("windows_average", {padded(t, p.x, fitting, 0), counts, p.kernel, p.strides, p.dilations})};
}

namespace {

Values plain_average_pool(Translator& t, const NodeView& n) {
  return average_pool(t, n, /*overhang_is_padding=*/false);
}

Arg lowest(ElementType type) {
  if (type == ElementType::Int8) return -128;
  if (type == ElementType::Uint8) return 0;
  return -std::numeric_limits<double>::infinity();
}

Values max_pool(Translator& t, const NodeView& n) {
  const Pool p = pool(t, n);
  Value x = p.x, margins = t.scalar(std::vector<int64_t>(2 * p.rank(), 0));
  auto padding = aten_padding(t, p);
  if (padding && std::ranges::any_of(*padding, [](int64_t size) { return size > kMostPadding; }))
    n.unsupported("with a padding of more than " + std::to_string(kMostPadding) + " elements");
  bool ceil_mode = p.ceil_mode;
  if (!padding) {
    margins = fitting_pads(t, p);
    x = padded(t, p.x, margins, lowest(n.element(0)));
    padding = std::vector<int64_t>(p.rank(), 0);
    ceil_mode = false;
  }
  const bool by_aten = p.rank() >= 1 && p.rank() <= 3 && !is_known_empty(t, p.x);
  const bool integers = !is_floating(n.element(0));  // ATen has no max_pool1d for them
  if (by_aten && !n.wants(1) && !integers) {
    return {t.call(p.aten("max_pool"), {x, p.kernel, p.strides, *padding, p.dilations, ceil_mode})};
  }
  if (by_aten && info(n.element(0)).bits == 8) x = t.call("aten::contiguous", {x});  // ATen has no other order of these
  const Values found = by_aten ? t.call_all("aten::max_pool" + std::to_string(p.rank()) + "d_with_indices",
                                            {x, p.kernel, p.strides, *padding, p.dilations, ceil_mode})
                               : t.call_all("windows_max", {x, p.kernel, p.strides, p.dilations});
  if (!n.wants(1)) return {found[0]};
  const bool column_major = n.has_attribute("storage_order") && n.attr_int("storage_order") != 0;
  return {found[0], t.call("pool_indices",
                           {found[1], t.call("aten::size", {x}), margins, t.call("aten::size", {p.x}), column_major})};
}

Values lp_pool(Translator& t, const NodeView& n, Arg p) {
  const Pool windows = pool(t, n);
  const Value x = padded(t, windows.x, fitting_pads(t, windows), 0);
  return {t.call("windows_norm", {x, windows.kernel, windows.strides, windows.dilations, std::move(p)})};
}

Values lp_pool_1(Translator& t, const NodeView& n) { return lp_pool(t, n, n.attr_float("p")); }
Values lp_pool_2(Translator& t, const NodeView& n) { return lp_pool(t, n, n.attr_int("p")); }

}  // namespace

void register_pooling_ops(Registry& r) {
  // AveragePool-7 has count_include_pad, 10 ceil_mode, 19 dilations.
  r.op("AveragePool").since(1, plain_average_pool).reviewed_to(22);
  r.op("MaxPool").since(1, max_pool).reviewed_to(22);  // 8 has Indices and storage_order, 10 ceil_mode and dilations
  r.op("LpPool").since(1, lp_pool_1).since(2, lp_pool_2).reviewed_to(22);  // 18 has ceil_mode and dilations
  r.op("GlobalAveragePool").since(1, script("global_average_pool")).reviewed_to(22);
  r.op("GlobalMaxPool").since(1, script("global_max_pool")).reviewed_to(22);
  r.op("GlobalLpPool").since(1, script("global_lp_pool")).reviewed_to(22);  // p was a float before 2
  r.op("MaxUnpool").since(9, script("max_unpool")).reviewed_to(22);
  r.op("MaxRoiPool").since(1, script("max_roi_pool")).reviewed_to(22);
  // RoiAlign-16 shifts the regions by half a pixel, unless told not to.
  r.op("RoiAlign")
      .since(10, script("roi_align", {kw("coordinate_transformation_mode", "output_half_pixel")}))
      .since(16, script("roi_align"))
      .reviewed_to(22);
}

}  // namespace onnxtorch
