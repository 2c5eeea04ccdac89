// Optional, OptionalHasElement, OptionalGetElement.
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

using Kind = ValueType::Kind;

Values optional(Translator& t, const NodeView& n) {
  if (n.has(0)) return {n.input(0).as(ValueType::optional(n.input(0).type))};
  if (!n.has_attribute("type")) n.fail("needs an input, or the attribute \"type\" where it is to be empty");
  return {t.scalar(none).as(ValueType::optional(n.attr_type("type")))};
}

Values optional_has_element(Translator& t, const NodeView& n) {
  const Value is_there = n.has(0) ? t.call("aten::__isnot__", {n.input(0), none}) : t.scalar(false);
  return {is_there.as(ElementType::Bool)};
}

Values optional_get_element(Translator& t, const NodeView& n) {
  const Value x = n.input(0);
  const ValueType type = x.type.kind == Kind::Optional ? *x.type.inner : x.type;
  return {t.call("aten::_unwrap_optional", {x}).as(type)};
}

}  // namespace

void register_optional_ops(Registry& r) {
  r.op("Optional").since(15, optional).reviewed_to(28);
  r.op("OptionalHasElement").since(15, optional_has_element).reviewed_to(28);  // since 18 the input may be absent
  r.op("OptionalGetElement").since(15, optional_get_element).reviewed_to(28);
}

}  // namespace onnxtorch
