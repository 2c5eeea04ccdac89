// Arithmetic, element by element: Add to Clip, the functions of one number, CumSum and CumProd.
#include <algorithm>

#include "ops/arithmetic.h"
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

bool is_uint64(ElementType type) { return info(type).wrap == Wrap::Bits64; }

// Makes an addition, subtraction or multiplication: they are right modulo any power of two, so that uint64 needs no
// care.
TensorOperation modular(std::string function) {
  return [function = std::move(function)](Translator& t, const Value& a, const Value& b, ElementType type) {
    return wrapped(t, t.call(function, {a, b}), type);
  };
}

TensorOperation extreme(std::string function) {
  return [function = std::move(function)](Translator& t, const Value& a, const Value& b, ElementType type) {
    return ordered(t, t.call(function, {ordered(t, a, type), ordered(t, b, type)}), type);
  };
}

// Tells whether a division may end the process, as ATen's does of the least integer of 32 or 64 bits by -1, and its
// remainder.
bool may_overflow(Translator& t, const Value& divisor, ElementType type) {
  if (is_floating(type) || is_unsigned(type) || info(type).bits < 32) return false;
  const auto known = t.known_ints(divisor);
  return !known || std::ranges::count(*known, -1) > 0;
}

// Divides. The quotient of integers is rounded toward zero.
Value quotient(Translator& t, const Value& a, const Value& b, ElementType type) {
  if (is_floating(type)) return t.call("aten::div", {a, b});
  if (is_uint64(type)) return t.call("unsigned_div", {a, b});
  if (may_overflow(t, b, type)) return t.call("wrapping_div", {a, b});
  return t.call("aten::div", {a, b, kw("rounding_mode", "trunc")});
}

// Gives the remainder with the sign of the divisor, zero included.
Value floor_remainder(Translator& t, const Value& a, const Value& b, ElementType type) {
  if (is_uint64(type)) return t.call("unsigned_mod", {a, b});
  const Value remainder = t.call(may_overflow(t, b, type) ? "floor_mod" : "aten::remainder", {a, b});
  return is_floating(type) ? t.call("aten::copysign", {remainder, b}) : remainder;
}

Values mod(Translator& t, const NodeView& n) {
  static const TranslateFunction floor_mod = arithmetic(floor_remainder);
  if (n.attr_int("fmod") == 0) return floor_mod(t, n);
  const Value divisor = n.tensor(1);
  const bool overflows = may_overflow(t, divisor, n.element(0));
  const char* const function = is_uint64(n.element(0)) ? "unsigned_mod" : overflows ? "truncated_mod" : "aten::fmod";
  return {t.call(function, {n.tensor(0), divisor})};
}

// Translates Pow. The result has the type of the base, whatever the exponent's.
Values pow(Translator& t, const NodeView& n) {
  const Value base = n.tensor(0);
  if (is_floating(n.element(0))) {
    if (const auto exponent = t.known_number(n.input(1))) return {t.call("aten::pow", {base, *exponent})};
  }
  const bool in_double = !is_floating(n.element(0)) && is_floating(n.element(1));
  const Value power = t.call("aten::pow", {in_double ? t.call("aten::to", {base, c10::kDouble}) : base, n.tensor(1)});
  return {n.element(0) == n.element(1) ? power : t.call("aten::to", {power, n.element(0)})};
}

Values mean(Translator& t, const NodeView& n) {
  static const TranslateFunction sum = arithmetic(modular("aten::add"));
  Values total = sum(t, n);
  if (n.input_count() == 1) return total;
  return {t.call("aten::div", {total[0], static_cast<int64_t>(n.input_count())})};
}

Values neg(Translator& t, const NodeView& n) {
  if (n.on_host()) return {shape_arithmetic(t, "Sub", t.scalar(0), n.input(0))};
  return {t.call("aten::neg", {n.tensor(0)})};
}

Values abs(Translator& t, const NodeView& n) {
  if (is_unsigned(n.element(0))) return {n.input(0)};
  if (n.on_host()) return {shape_arithmetic(t, "Max", n.input(0), neg(t, n)[0])};
  return {t.call("aten::abs", {n.tensor(0)})};
}

Values sign(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0);
  if (is_uint64(n.element(0))) return {t.call("aten::to", {t.call("aten::ne", {x, 0}), n.element(0)})};
  return {t.call("aten::sign", {x})};
}

// Translates Erf-9, which takes integers as well.
Values erf_9(Translator& t, const NodeView& n) {
  return {t.call("aten::to", {t.call("aten::erf", {n.tensor(0)}), n.element(0)})};
}

// Translates Clip: absent bounds bound nothing; where the lower one is above the upper one, the upper one wins.
Values clip(Translator& t, const NodeView& n) {
  const ElementType type = n.element(0);
  if (!n.has(1) && !n.has(2)) return {n.input(0)};
  const auto least = t.known_number(n.input(1)), most = t.known_number(n.input(2));
  if (is_floating(type) && n.has(1) == least.has_value() && n.has(2) == most.has_value()) {
    return {t.call("aten::clamp", {n.tensor(0), least, most})};
  }
  const auto bound = [&](size_t i) { return n.has(i) ? ordered(t, n.tensor(i), type) : Value{}; };
  return {ordered(t, t.call("aten::clamp", {ordered(t, n.tensor(0), type), bound(1), bound(2)}), type)};
}

Values cumulative(Translator& t, const NodeView& n, const char* function) {
  const bool exclusive = n.attr_int("exclusive") != 0, reverse = n.attr_int("reverse") != 0;
  const Value result = t.call(function, {n.tensor(0), n.integer(1), exclusive, reverse});
  return {wrapped(t, result, n.element(0))};
}
Values cumsum(Translator& t, const NodeView& n) { return cumulative(t, n, "cumulative_sum"); }
Values cumprod(Translator& t, const NodeView& n) { return cumulative(t, n, "cumulative_product"); }

}  // namespace

void register_math_ops(Registry& r) {
  const TranslateFunction add = arithmetic(modular("aten::add"));
  const TranslateFunction sub = arithmetic(modular("aten::sub"));
  const TranslateFunction mul = arithmetic(modular("aten::mul"));
  const TranslateFunction div = arithmetic(quotient);
  r.op("Add").since(1, legacy_broadcast(add)).since(7, add).reviewed_to(14);
  r.op("Sub").since(1, legacy_broadcast(sub)).since(7, sub).reviewed_to(14);
  r.op("Mul").since(1, legacy_broadcast(mul)).since(7, mul).reviewed_to(14);
  r.op("Div").since(1, legacy_broadcast(div)).since(7, div).reviewed_to(14);
  r.op("Pow").since(1, legacy_broadcast(pow)).since(7, pow).reviewed_to(15);
  r.op("Mod").since(10, mod).reviewed_to(28);
  r.op("Max").since(1, arithmetic(extreme("aten::maximum"))).reviewed_to(13);
  r.op("Min").since(1, arithmetic(extreme("aten::minimum"))).reviewed_to(13);
  r.op("Sum").since(1, add).reviewed_to(13);
  r.op("Mean").since(1, mean).reviewed_to(13);

  r.op("Neg").since(1, neg).reviewed_to(13);
  r.op("Abs").since(1, abs).reviewed_to(13);
  r.op("Sign").since(9, sign).reviewed_to(13);
  // Clip-6 has defaults of min and max.
  r.op("Clip").since(1, script("clip_by_attributes")).since(11, clip).reviewed_to(13);
  r.op("CumSum").since(11, cumsum).reviewed_to(14);
  r.op("CumProd").since(26, cumprod).reviewed_to(26);

  r.op("Ceil").since(1, plain("aten::ceil")).reviewed_to(13);
  r.op("Floor").since(1, plain("aten::floor")).reviewed_to(13);
  r.op("Round").since(11, plain("aten::round")).reviewed_to(22);  // halves to even
  r.op("Reciprocal").since(1, plain("aten::reciprocal")).reviewed_to(13);
  r.op("Sqrt").since(1, plain("aten::sqrt")).reviewed_to(13);
  r.op("Exp").since(1, plain("aten::exp")).reviewed_to(13);
  r.op("Log").since(1, plain("aten::log")).reviewed_to(13);
  r.op("Erf").since(9, erf_9).since(13, plain("aten::erf")).reviewed_to(13);
  r.op("Sin").since(7, plain("aten::sin")).reviewed_to(22);
  r.op("Cos").since(7, plain("aten::cos")).reviewed_to(22);
  r.op("Tan").since(7, plain("aten::tan")).reviewed_to(22);
  r.op("Asin").since(7, plain("aten::asin")).reviewed_to(22);
  r.op("Acos").since(7, plain("aten::acos")).reviewed_to(22);
  r.op("Atan").since(7, plain("aten::atan")).reviewed_to(22);
  r.op("Sinh").since(9, plain("aten::sinh")).reviewed_to(22);
  r.op("Cosh").since(9, plain("aten::cosh")).reviewed_to(22);
  r.op("Tanh").since(1, plain("aten::tanh")).reviewed_to(13);
  r.op("Asinh").since(9, plain("aten::asinh")).reviewed_to(22);
  r.op("Acosh").since(9, plain("aten::acosh")).reviewed_to(22);
  r.op("Atanh").since(9, plain("aten::atanh")).reviewed_to(22);
}

}  // namespace onnxtorch
