// The operators that change or tell a shape: Shape, Size, Reshape, Flatten, Squeeze, Unsqueeze, Expand, Identity.
#include <algorithm>

#include "ops/host_ints.h"
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

Values identity(Translator&, const NodeView& n) { return {n.input(0)}; }

Value sizes(Translator& t, const Value& x) {
  if (!t.on_host(x)) return t.call("aten::size", {t.tensor(x)});
  if (is_host_scalar(t, x)) return t.scalar(std::vector<int64_t>{});
  return int_list(t, {t.call("aten::len", {x})});
}

Values shape_1(Translator& t, const NodeView& n) { return {sizes(t, n.input(0))}; }

// Translates Shape-15, whose start and end cut a slice out of the shape.
Values shape_15(Translator& t, const NodeView& n) {
  const Value all = sizes(t, n.input(0));
  const Arg end = n.has_attribute("end") ? Arg(n.attr_int("end")) : Arg(none);
  return {t.call("aten::slice", {all, n.attr_int("start"), end})};
}

Values size(Translator& t, const NodeView& n) { return {t.call("aten::numel", {n.tensor(0)})}; }

std::optional<int64_t> known_count(Translator& t, const Value& host_ints) {
  const auto shape = t.known_shape(host_ints);
  if (!shape) return {};
  return shape->empty() ? 1 : shape->at(0);
}

constexpr size_t kMostDims = 1024;  // the most dimensions of a shape

// Gives the sizes that the shape stands for: 0 keeps the size of the input's dimension, unless `allowzero` says
// otherwise.
Value reshaped_sizes(Translator& t, const NodeView& n, const Value& x, const Value& shape) {
  if (n.has_attribute("allowzero") && n.attr_int("allowzero") != 0) return shape;
  const auto known = t.known_ints(shape);
  if (known && std::ranges::count(*known, 0) == 0) return shape;
  const auto items = t.items(shape);
  if (!items || items->size() > kMostDims) return t.call("kept_sizes", {t.call("aten::size", {x}), shape});
  Values result;
  for (size_t i = 0; i < items->size(); ++i)
    result.push_back(t.call("kept_size", {x, static_cast<int64_t>(i), (*items)[i]}));
  return int_list(t, result);
}

Values reshape(Translator& t, const NodeView& n) {
  const Value shape = ints_or_attribute(t, n, 1, "shape");
  if (t.on_host(n.input(0))) {
    const auto rank = t.known_shape(shape);
    const auto sizes = t.known_ints(shape);
    if (rank && rank->at(0) == 0) return {n.integer(0)};
    if (sizes && sizes->size() == 1 && (sizes->at(0) == -1 || sizes->at(0) == known_count(t, n.input(0))))
      return {n.ints(0)};
  }
  const Value x = n.tensor(0);
  return {t.call("aten::reshape", {x, reshaped_sizes(t, n, x, shape)})};
}

Values flatten(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0);
  return {t.call("aten::reshape", {x, t.call("flat_sizes", {t.call("aten::size", {x}), n.attr_int("axis")})})};
}

// Gives the axes in an order in which dimensions can be removed or inserted one by one, whatever the rank. Returns none
// where the axes are not known, or have both signs: their order then depends on the rank.
std::optional<std::vector<int64_t>> in_turn(const NodeView& n, std::optional<std::vector<int64_t>> axes, bool comes) {
  const auto is_negative = [](int64_t axis) { return axis < 0; };
  if (!axes) return {};
  const bool from_end = std::ranges::any_of(*axes, is_negative);
  if (from_end && !std::ranges::all_of(*axes, is_negative)) return {};
  std::ranges::sort(*axes);
  if (std::ranges::adjacent_find(*axes) != axes->end()) n.fail("an axis is named twice");
  if (from_end == comes) std::ranges::reverse(*axes);
  return axes;
}

bool is_known_as_one(Translator& t, const Value& x, int64_t axis) {
  const auto sizes = t.known_sizes(x);
  if (!sizes) return false;
  const auto rank = static_cast<int64_t>(sizes->size());
  return -rank <= axis && axis < rank && sizes->at(axis < 0 ? axis + rank : axis) == 1;
}

// Translates Squeeze. Absent axes mean every dimension of size 1. ATen would keep a dimension of another size.
Values squeeze(Translator& t, const NodeView& n) {
  const Value axes = ints_or_attribute(t, n, 1, "axes");
  if (t.on_host(n.input(0))) {
    if (is_host_scalar(t, n.input(0))) return {n.input(0)};
    const auto shape = t.known_shape(n.input(0));
    if (!axes.absent() || shape == std::vector<int64_t>{1}) return {n.integer(0)};
    if (shape) return {n.input(0)};
  }
  Value x = n.tensor(0);
  if (axes.absent()) return {t.call("aten::squeeze", {x})};
  const auto ordered = in_turn(n, t.known_ints(axes), false);
  if (!ordered) return {t.call("squeeze", {x, axes})};
  for (const int64_t axis : *ordered)
    x = t.call(is_known_as_one(t, x, axis) ? "aten::squeeze" : "without_dimension", {x, axis});
  return {x};
}

// Translates Unsqueeze, whose axes count in the result.
Values unsqueeze(Translator& t, const NodeView& n) {
  const Value axes = ints_or_attribute(t, n, 1, "axes");
  const auto known = t.known_ints(axes);
  if (known && known->size() == 1 && t.on_host(n.input(0)) && is_host_scalar(t, n.input(0))) return {n.ints(0)};
  const auto ordered = in_turn(n, known, true);
  if (!ordered) return {t.call("unsqueeze", {n.tensor(0), axes})};
  Value x = n.tensor(0);
  for (const int64_t axis : *ordered) x = t.call("aten::unsqueeze", {x, axis});
  return {x};
}

Values expand(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0);
  return {t.call("aten::expand_copy", {x, t.call("aten::_infer_size", {t.call("aten::size", {x}), n.ints(1)})})};
}

}  // namespace

void register_shape_ops(Registry& r) {
  r.op("Identity").since(1, identity).reviewed_to(25);
  r.op("Shape").since(1, shape_1).since(15, shape_15).reviewed_to(25);
  r.op("Size").since(1, size).reviewed_to(25);
  r.op("Reshape").since(1, reshape).reviewed_to(25);  // shape was an attribute before 5; 14 has allowzero
  r.op("Flatten").since(1, flatten).reviewed_to(25);
  r.op("Squeeze").since(1, squeeze).reviewed_to(25);      // axes was an attribute before 13
  r.op("Unsqueeze").since(1, unsqueeze).reviewed_to(25);  // axes was an attribute before 13
  r.op("Expand").since(8, expand).reviewed_to(13);
}

}  // namespace onnxtorch
