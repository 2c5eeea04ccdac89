// Shape, Size, Reshape, Flatten, Squeeze, Unsqueeze, Expand, Identity: what changes or tells a shape.
#include "ops/ops.h"
#include "registry/registry.h"

namespace onnxtorch {
namespace {

Values identity(Translator&, const NodeView& n) { return {n.input(0)}; }

Values shape_1(Translator& t, const NodeView& n) { return {t.call("aten::size", {n.tensor(0)})}; }

// Shape-15: start and end cut a slice out of the shape.
Values shape_15(Translator& t, const NodeView& n) {
  const Value sizes = t.call("aten::size", {n.tensor(0)});
  const Arg end = n.has_attribute("end") ? Arg(n.attr_int("end")) : Arg(none);
  return {t.call("shape_slice", {sizes, n.attr_int("start"), end})};
}

Values size(Translator& t, const NodeView& n) { return {t.call("aten::numel", {n.tensor(0)})}; }

// Squeeze: absent axes mean every dimension of size 1.
Values squeeze(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0);
  if (n.has(1)) return {t.call("aten::squeeze", {x, n.ints(1)})};
  if (n.has_attribute("axes")) return {t.call("aten::squeeze", {x, n.attr_ints("axes")})};
  return {t.call("aten::squeeze", {x})};
}

}  // namespace

void register_shape_ops(Registry& r) {
  r.op("Identity").since(1, identity).reviewed_to(25);
  r.op("Shape").since(1, shape_1).since(15, shape_15).reviewed_to(25);
  r.op("Size").since(1, size).reviewed_to(25);
  r.op("Reshape").since(1, script("reshape")).reviewed_to(25);
  r.op("Flatten").since(1, script("flatten")).reviewed_to(25);
  r.op("Squeeze").since(1, squeeze).reviewed_to(25);
  r.op("Unsqueeze").since(1, script("unsqueeze")).reviewed_to(25);
  r.op("Expand").since(8, script("expand")).reviewed_to(13);
}

}  // namespace onnxtorch
