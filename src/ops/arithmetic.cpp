#include "ops/arithmetic.h"

#include <limits>

namespace onnxtorch {
namespace {

using HostOperation = Value (*)(Translator&, const std::string&, const Value&, const Value&);

// Whether a value that is on the host, or known, has rank 0.
bool is_host_scalar(Translator& t, const Value& v) {
  const auto shape = t.known_shape(v);
  return shape && shape->empty();
}

TranslateFunction joined(HostOperation on_host, TensorOperation on_tensors) {
  return [on_host, on_tensors](Translator& t, const NodeView& n) {
    const bool stays = n.on_host();
    Value result = stays ? n.input(0) : n.tensor(0);
    for (size_t i = 1; i < n.input_count(); ++i) {
      result = stays ? on_host(t, std::string(n.schema()->name), result, n.input(i))
                     : on_tensors(t, result, n.tensor(i), n.element(0));
    }
    return Values{result};
  };
}

}  // namespace

Value wrapped(Translator& t, Value v, ElementType type) {
  const int64_t mask = (int64_t{1} << info(type).bits % 64) - 1;
  switch (info(type).wrap) {
    case Wrap::None:
    case Wrap::Bits64: return v;
    case Wrap::Unsigned: return t.call("aten::bitwise_and", {v, mask}).as(type);
    case Wrap::Signed: {
      const int64_t sign = (mask + 1) / 2;
      const Value low = t.call("aten::bitwise_and", {v, mask});
      return t.call("aten::sub", {t.call("aten::bitwise_xor", {low, sign}), sign}).as(type);
    }
  }
  return v;
}

Value ordered(Translator& t, Value v, ElementType type) {
  if (info(type).wrap != Wrap::Bits64) return v;
  return t.call("aten::bitwise_xor", {v, std::numeric_limits<int64_t>::min()}).as(type);
}

bool is_unsigned(ElementType type) { return info(type).name.starts_with("uint"); }

Value shape_arithmetic(Translator& t, const std::string& operation, const Value& a, const Value& b) {
  const bool scalar = is_host_scalar(t, a) && is_host_scalar(t, b);
  return (scalar ? t.call("int_arithmetic", {operation, t.integer(a), t.integer(b)})
                 : t.call("ints_arithmetic", {operation, t.ints(a), t.ints(b)}))
      .as(ElementType::Int64);
}

Value shape_comparison(Translator& t, const std::string& operation, const Value& a, const Value& b) {
  const bool scalar = is_host_scalar(t, a) && is_host_scalar(t, b);
  return (scalar ? t.call("int_comparison", {operation, t.integer(a), t.integer(b)})
                 : t.call("ints_comparison", {operation, t.ints(a), t.ints(b)}))
      .as(ElementType::Bool);
}

Value shape_where(Translator& t, const Value& condition, const Value& x, const Value& y) {
  const bool one_condition = is_host_scalar(t, condition);
  if (one_condition && is_host_scalar(t, x) && is_host_scalar(t, y)) {
    return t.call("int_where", {condition, t.integer(x), t.integer(y)}).as(ElementType::Int64);
  }
  const Value conditions = one_condition ? t.list({condition}) : condition;
  return t.call("ints_where", {conditions, t.ints(x), t.ints(y)}).as(ElementType::Int64);
}

TranslateFunction arithmetic(TensorOperation operation) { return joined(shape_arithmetic, std::move(operation)); }
TranslateFunction comparison(TensorOperation operation) { return joined(shape_comparison, std::move(operation)); }

TranslateFunction plain(std::string function) {
  return [function](Translator& t, const NodeView& n) {
    const Values tensors = n.tensors();
    return Values{t.call(function, {tensors.begin(), tensors.end()})};
  };
}

TranslateFunction legacy_broadcast(TranslateFunction modern) {
  return [modern](Translator& t, const NodeView& n) {
    if (!n.has_attribute("axis")) return modern(t, n);
    const Value b = t.call("aligned", {n.tensor(0), n.tensor(1), n.attr_int("axis")}).as(n.input(1).type);
    return modern(t, NodeView(t, n.proto(), n.schema(), n.label(), {n.input(0), b}));
  };
}

}  // namespace onnxtorch
