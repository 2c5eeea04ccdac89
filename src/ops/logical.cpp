// Comparisons, Where, and operators on booleans and bits.
#include <algorithm>

#include "ops/arithmetic.h"
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// Compares elements. Strings are equal where their ids are.
Value equal(Translator& t, const Value& a, const Value& b, ElementType) { return t.call("aten::eq", {a, b}); }

TensorOperation order(std::string function) {
  return [function = std::move(function)](Translator& t, const Value& a, const Value& b, ElementType type) {
    return t.call(function, {ordered(t, a, type), ordered(t, b, type)});
  };
}

Values where(Translator& t, const NodeView& n) {
  if (t.bool_on_host(n.input(0)) && n.on_host(1)) return {shape_where(t, n.input(0), n.input(1), n.input(2))};
  return {t.call("aten::where", {n.tensor(0), n.tensor(1), n.tensor(2)})};
}

// Makes the translator of an operator on booleans; conditions on the host stay there.
TranslateFunction logical(std::string on_conditions, std::string on_tensors) {
  return
      [on_conditions = std::move(on_conditions), on_tensors = std::move(on_tensors)](Translator& t, const NodeView& n) {
        const auto is_condition = [&](const Value& v) {
          return t.bool_on_host(v) && t.known_shape(v) == std::vector<int64_t>{};
        };
        const bool stays = std::ranges::all_of(n.inputs(), is_condition);
        const Values operands = stays ? n.inputs() : n.tensors();
        return Values{t.call(stays ? on_conditions : on_tensors, {operands.begin(), operands.end()})};
      };
}

TranslateFunction bitwise(std::string function) {
  return [function = std::move(function)](Translator& t, const NodeView& n) {
    return Values{wrapped(t, plain(function)(t, n)[0], n.element(0))};
  };
}

Values bit_shift(Translator& t, const NodeView& n) {
  static const TranslateFunction left = bitwise("aten::bitwise_left_shift"), right = plain("aten::bitwise_right_shift");
  static const TranslateFunction unsigned_right = plain("unsigned_shift_right_by");
  const std::string direction = n.attr_string("direction");
  if (direction == "LEFT") return left(t, n);
  if (direction != "RIGHT") n.fail("its direction is neither LEFT nor RIGHT");
  return info(n.element(0)).wrap == Wrap::Bits64 ? unsigned_right(t, n) : right(t, n);
}

// Makes the translator that classifies the type itself, or a wider one where ATen does not know it.
TranslateFunction classified(TranslateFunction classify) {
  return [classify = std::move(classify)](Translator& t, const NodeView& n) {
    if (!is_small_float(n.element(0))) return classify(t, n);
    const Value wide = t.call("aten::to", {n.tensor(0), c10::kFloat}).as(ElementType::Float);
    return classify(t, NodeView(t, n.proto(), n.schema(), n.label(), {wide}));
  };
}

}  // namespace

void register_logical_ops(Registry& r) {
  const TranslateFunction equals = comparison(equal);
  const TranslateFunction greater = comparison(order("aten::gt"));
  const TranslateFunction less = comparison(order("aten::lt"));
  r.op("Equal").since(1, legacy_broadcast(equals)).since(7, equals).reviewed_to(19);
  r.op("Greater").since(1, legacy_broadcast(greater)).since(7, greater).reviewed_to(13);
  r.op("Less").since(1, legacy_broadcast(less)).since(7, less).reviewed_to(13);
  r.op("GreaterOrEqual").since(12, comparison(order("aten::ge"))).reviewed_to(16);
  r.op("LessOrEqual").since(12, comparison(order("aten::le"))).reviewed_to(16);
  r.op("Where").since(9, where).reviewed_to(16);

  const TranslateFunction and_ = logical("aten::__and__", "aten::logical_and");
  const TranslateFunction or_ = logical("aten::__or__", "aten::logical_or");
  const TranslateFunction xor_ = logical("aten::__xor__", "aten::logical_xor");
  r.op("And").since(1, legacy_broadcast(and_)).since(7, and_).reviewed_to(7);
  r.op("Or").since(1, legacy_broadcast(or_)).since(7, or_).reviewed_to(7);
  r.op("Xor").since(1, legacy_broadcast(xor_)).since(7, xor_).reviewed_to(7);
  r.op("Not").since(1, logical("aten::__not__", "aten::logical_not")).reviewed_to(1);

  r.op("IsInf").since(10, classified(script("isinf"))).reviewed_to(20);
  r.op("IsNaN").since(9, classified(plain("aten::isnan"))).reviewed_to(20);

  r.op("BitShift").since(11, bit_shift).reviewed_to(28);
  r.op("BitwiseAnd").since(18, plain("aten::bitwise_and")).reviewed_to(18);
  r.op("BitwiseOr").since(18, plain("aten::bitwise_or")).reviewed_to(18);
  r.op("BitwiseXor").since(18, plain("aten::bitwise_xor")).reviewed_to(18);
  r.op("BitwiseNot").since(18, bitwise("aten::bitwise_not")).reviewed_to(18);
}

}  // namespace onnxtorch
