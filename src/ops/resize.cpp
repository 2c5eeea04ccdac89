// Resize and Upsample: the versions before Resize-11 leave the attributes' later values out.
#include <cmath>
#include <limits>

#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

std::string string_or(const NodeView& n, const char* name, const char* otherwise) {
  return n.has_attribute(name) ? n.attr_string(name) : otherwise;
}

double float_or(const NodeView& n, const char* name, double otherwise) {
  return n.has_attribute(name) ? n.attr_float(name) : otherwise;
}

struct Resizing {
  Value x, sizes, outputs, factors;  // int[], int[] and float[] of all axes
  std::string mode, transformation, nearest_mode;
  bool antialias, exclude_outside;
  double cubic_coeff_a;

  bool crops() const { return transformation == "tf_crop_and_resize"; }
};

// Gives the dtype that weighted sums are made in.
ElementType weighted_type(ElementType type) {
  switch (type) {
    case ElementType::Float:
    case ElementType::Float16:
    case ElementType::Bfloat16:
      return ElementType::Float;
    case ElementType::Complex64:
    case ElementType::Complex128:
      return type;
    default:
      return ElementType::Double;
  }
}

// Gives the result of a weighted sum in its element type; integers are rounded and keep within their range.
Value stored(Translator& t, Value y, ElementType type) {
  if (weighted_type(type) == type) return y;
  if (!is_floating(type)) {
    const int bits = info(type).bits;
    const bool is_unsigned = info(type).name.starts_with("uint");
    const double high = std::ldexp(1.0, is_unsigned ? bits : bits - 1) - 1;
    y = t.call("aten::round", {y});
    if (bits < 64) y = t.call("aten::clamp", {y, is_unsigned ? 0.0 : -high - 1, high});
  }
  return t.call("aten::to", {y, type});
}

Value resized_by_taps(Translator& t, const NodeView& n, const Resizing& r, const Value& roi) {
  const Values taps =
      t.call_all("resize_taps", {r.sizes, r.outputs, r.factors, roi, r.mode, r.transformation, r.nearest_mode,
                                 r.cubic_coeff_a, r.antialias, r.exclude_outside, t.device()});
  const Value &axes = taps[0], &indices = taps[1], &weights = taps[2], &outside = taps[3];
  const ElementType type = n.element(0);
  Value y = r.mode == "nearest" ? t.call("resize_nearest", {r.x, axes, indices})
                                : t.call("resize_weighted", {r.x, axes, indices, weights, weighted_type(type)});
  if (r.crops()) {
    y = t.call("resize_extrapolated", {y, axes, outside, float_or(n, "extrapolation_value", 0)});
  }
  return r.mode == "nearest" ? y : stored(t, y, type);
}

// Tells whether one of aten::upsample_* means the same for sizes it can take.
bool is_aten_nearest(const Resizing& r, ElementType type) {
  const bool has_kernel = is_floating(type) || type == ElementType::Uint8;
  if (r.mode != "nearest" || !has_kernel) return false;
  const std::string& rounding = r.nearest_mode;
  if (r.transformation == "asymmetric") return rounding == "floor" || rounding == "simple";
  return r.transformation.ends_with("half_pixel") && rounding.starts_with("round_prefer");
}

// Tells whether the corners that are aligned are those of whole pixels. ONNX aligns the corners of what a scale leads
// to, of 33 pixels by 0.5 those of 16.5. PyTorch aligns those of the 16 that there are, and its exporters write the
// scale all the same. Both of them state the nearest_mode "floor" in each node, which has no meaning where nothing is
// the nearest, and is not what it is by default.
bool aligns_whole_pixels(const Resizing& r) {
  return r.transformation == "align_corners" && r.mode != "nearest" && r.nearest_mode == "floor";
}

bool is_aten_smooth(const Resizing& r, ElementType type) {
  if (r.mode == "nearest" || !is_floating(type) || r.antialias || r.exclude_outside) return false;
  if (r.mode == "cubic" && r.cubic_coeff_a != -0.75) return false;
  if (r.transformation == "asymmetric") return r.mode == "linear";
  return r.transformation.ends_with("half_pixel") || r.transformation == "align_corners";
}

Values resized(Translator& t, const NodeView& n, const Value& scales, const Value& target, const Value& roi) {
  const Value x = n.tensor(0);
  const Value sizes = t.call("aten::size", {x});
  const Arg axes = n.has_attribute("axes") ? Arg(n.attr_ints("axes")) : Arg(none);
  const Values layout =
      t.call_all("resize_layout", {sizes, scales, target, axes, string_or(n, "keep_aspect_ratio_policy", "stretch")});
  Resizing r{.x = x,
             .sizes = sizes,
             .outputs = layout[0],
             .factors = layout[1],
             .mode = n.attr_string("mode"),
             .transformation = string_or(n, "coordinate_transformation_mode", "asymmetric"),
             .nearest_mode = string_or(n, "nearest_mode", "simple"),
             .antialias = n.attr_flag("antialias"),
             .exclude_outside = n.attr_flag("exclude_outside"),
             .cubic_coeff_a = float_or(n, "cubic_coeff_a", -0.75)};
  if (r.mode == "bilinear") r.mode = "linear";
  if (r.mode != "nearest" && r.mode != "linear" && r.mode != "cubic") n.fail("there is no mode \"" + r.mode + "\"");
  if (aligns_whole_pixels(r)) r.factors = t.call("whole_factors", {r.sizes, r.outputs});
  const ElementType type = n.element(0);
  if (r.mode != "nearest" && (type == ElementType::Bool || type == ElementType::String)) {
    n.fail("elements of type " + std::string(info(type).name) + " have no weighted sums");
  }
  const Value region = r.crops() && !roi.absent()
                           ? t.call("resize_roi", {t.call("read_floats", {roi}), axes, t.call("aten::dim", {x})})
                           : t.scalar(std::vector<double>{});
  const auto by_taps = [&] { return Values{resized_by_taps(t, n, r, region)}; };
  if (is_aten_nearest(r, type)) {
    return t.branch(
        t.call("resizes_nearest_by_aten", {r.sizes, r.outputs, r.factors}),
        [&] { return Values{t.call("upsample_nearest", {x, r.outputs})}; }, by_taps);
  }
  if (is_aten_smooth(r, type)) {
    return t.branch(
        t.call("resizes_smoothly_by_aten", {r.sizes, r.outputs, r.factors, r.mode, r.transformation}),
        [&] {
          if (r.transformation == "asymmetric") return Values{t.call("upsample_asymmetric", {x, r.outputs})};
          return Values{t.call("upsample_smooth",
                               {x, r.outputs, r.factors, r.mode == "cubic", r.transformation == "align_corners"})};
        },
        by_taps);
  }
  return by_taps();
}

Value floats(Translator& t, const Value& v) { return v.absent() ? v : t.call("read_floats", {t.tensor(v)}); }

Values upsample_1(Translator& t, const NodeView& n) {
  return resized(t, n, t.scalar(std::vector<double>{1, 1, n.attr_float("height_scale"), n.attr_float("width_scale")}),
                 {}, {});
}

Values upsample_7(Translator& t, const NodeView& n) { return resized(t, n, t.scalar(n.attr_floats("scales")), {}, {}); }
Values resize_10(Translator& t, const NodeView& n) { return resized(t, n, floats(t, n.input(1)), {}, {}); }
Values resize_11(Translator& t, const NodeView& n) {
  return resized(t, n, floats(t, n.input(2)), n.ints(3), n.tensor(1));
}

}  // namespace

void register_resize_ops(Registry& r) {
  r.op("Upsample").since(1, upsample_1).since(7, upsample_7).since(9, resize_10).reviewed_to(10);
  // Since 13 roi may be absent; 18 has antialias, axes and keep_aspect_ratio_policy.
  r.op("Resize").since(10, resize_10).since(11, resize_11).reviewed_to(19);
}

}  // namespace onnxtorch
