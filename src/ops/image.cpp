// GridSample, AffineGrid, ImageDecoder, NonMaxSuppression.
#include <algorithm>
#include <array>

#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// Gives the position of a name in a list, which is its number in ATen.
template <size_t N>
int64_t number_of(const NodeView& n, const char* attribute, const std::array<std::string_view, N>& names) {
  const std::string name = n.attr_string(attribute);
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) n.fail("there is no " + std::string(attribute) + " \"" + name + "\"");
  return found - names.begin();
}

int64_t interpolation(const NodeView& n) {
  // GridSample-16 names the modes by two dimensions.
  const std::string mode = n.attr_string("mode");
  if (mode == "bilinear") return 0;
  if (mode == "bicubic") return 2;
  return number_of<3>(n, "mode", {"linear", "nearest", "cubic"});
}

Values grid_sample(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0), grid = n.tensor(1);
  const int64_t mode = interpolation(n);
  const int64_t padding = number_of<3>(n, "padding_mode", {"zeros", "border", "reflection"});
  const bool align_corners = n.attr_int("align_corners") != 0;
  const ElementType type = n.element(0);
  const bool any_double = type == ElementType::Double || n.element(1) == ElementType::Double;
  const ElementType computed = is_floating(type) && !any_double ? ElementType::Float : ElementType::Double;

  const auto by_taps = [&] {
    return Values{
        t.call("grid_sample_by_taps", {x, grid, mode, n.attr_string("padding_mode"), align_corners, computed})};
  };
  if (!is_floating(type)) return by_taps();
  const auto converted = [&](const Value& v, ElementType from, ElementType to) {
    return from == to ? v : t.call("aten::to", {v, to});
  };
  return t.branch(
      t.call("grid_samples_by_aten", {x, mode}),
      [&] {
        const Value y = t.call(
            "aten::grid_sampler",
            {converted(x, type, computed), converted(grid, n.element(1), computed), mode, padding, align_corners});
        return Values{converted(y, computed, type)};
      },
      by_taps);
}

}  // namespace

void register_image_ops(Registry& r) {
  r.op("GridSample").since(16, grid_sample).reviewed_to(22);  // 20 has other names of modes
  r.op("AffineGrid").since(20, script("affine_grid")).reviewed_to(20);
  r.op("ImageDecoder").since(20, script("image_decoder")).reviewed_to(20);
  r.op("NonMaxSuppression").since(10, script("non_max_suppression")).reviewed_to(11);
}

}  // namespace onnxtorch
