// ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd, ReduceL1, ReduceL2, ReduceSumSquare, ReduceLogSum,
// ReduceLogSumExp.
#include <algorithm>
#include <limits>
#include <optional>

#include "ops/arithmetic.h"
#include "ops/cast.h"
#include "ops/host_ints.h"
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

using enum ElementType;

struct Axes {
  Arg axes, keepdims, noop;

  std::vector<Arg> after(const Value& data) const { return {data, axes, keepdims, noop}; }
};

bool is_noop(const NodeView& n) {
  return n.has_attribute("noop_with_empty_axes") && n.attr_int("noop_with_empty_axes") != 0;
}

Axes axes_of(Translator& t, const NodeView& n) {
  return {ints_or_attribute(t, n, 1, "axes"), n.attr_int("keepdims") != 0, is_noop(n)};
}

// Makes the translator of a reduction with the element type it is computed in; its result is brought back to the
// node's.
TranslateFunction reduction(std::string script, ElementType (*computed_in)(ElementType)) {
  return [script = std::move(script), computed_in](Translator& t, const NodeView& n) {
    const ElementType type = n.element(0), wide = computed_in(type);
    const Value y = t.call(script, axes_of(t, n).after(cast(t, n.tensor(0), wide)));
    return Values{cast(t, y.as(wide), type)};
  };
}

// Gives the type to sum in. Sums of integers wrap: what int64 drops is what any narrower type drops.
ElementType exact(ElementType type) { return is_floating(type) ? type : Int64; }

ElementType exact_or_float(ElementType type) { return !is_floating(type) ? Int64 : type == Double ? Double : Float; }

ElementType real(ElementType type) { return !is_floating(type) || type == Double ? Double : Float; }

Values reduce_l1(Translator& t, const NodeView& n) {
  static const TranslateFunction sum = reduction("reduce_sum", exact);
  static const TranslateFunction l1 = reduction("reduce_l1", exact_or_float);
  return is_unsigned(n.element(0)) ? sum(t, n) : l1(t, n);
}

// Translates ReduceMean. The mean of integers is cut towards zero.
Values reduce_mean(Translator& t, const NodeView& n) {
  const ElementType type = n.element(0);
  const Axes axes = axes_of(t, n);
  if (is_floating(type)) return {t.call("reduce_mean", axes.after(n.tensor(0)))};
  const Value sum = t.call("reduce_sum", axes.after(cast(t, n.tensor(0), Int64)));
  const Value count = t.call("reduced_count", {n.tensor(0), axes.axes, axes.noop});
  const Value mean = type == Uint64 ? t.call("unsigned_div", {sum, count})
                                    : t.call("aten::div", {sum, count, kw("rounding_mode", "trunc")});
  return {cast(t, mean.as(Int64), type)};
}

// Gives what a maximum starts from: the lowest value of a type, in its stored dtype, `ordered`; a minimum from the
// highest.
Arg limit(ElementType type, bool highest) {
  if (is_floating(type)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return highest ? infinity : -infinity;
  }
  const int bits = type == Bool ? 1 : info(type).bits;
  if ((is_unsigned(type) && bits < 64) || type == Bool) return highest ? (int64_t{1} << bits) - 1 : int64_t{0};
  const int64_t lowest = std::numeric_limits<int64_t>::min() >> (64 - bits);
  return highest ? -(lowest + 1) : lowest;
}

TranslateFunction extremum(std::string script, bool is_min) {
  return [script = std::move(script), is_min](Translator& t, const NodeView& n) {
    const ElementType type = n.element(0);
    const auto shape = t.known_shape(n.input(0));
    const bool may_be_empty = !shape || std::ranges::find(*shape, 0) != shape->end();
    std::vector<Arg> args = axes_of(t, n).after(ordered(t, n.tensor(0), type));
    args.push_back(
        may_be_empty ? t.call("aten::scalar_tensor", {limit(type, is_min), kw("dtype", type), kw("device", t.device())})
                     : Arg(none));
    return Values{ordered(t, t.call(script, args).as(type), type)};
  };
}

// Reduces all items of a shape, or of one of its slices, to one.
Value reduced(Translator& t, const std::string& operation, const Value& ints, std::optional<int64_t> of_none) {
  const auto items = t.items(ints);
  if (!items || items->empty()) {
    return host_cast(t, t.call("ints_reduced", {operation, ints, of_none}), ints.type.element);
  }
  Value result = items->front();
  for (size_t i = 1; i < items->size(); ++i) result = shape_arithmetic(t, operation, result, (*items)[i]);
  return result;
}

TranslateFunction on_host(std::string operation, std::optional<int64_t> of_none, TranslateFunction on_tensors) {
  return [operation = std::move(operation), of_none, on_tensors = std::move(on_tensors)](Translator& t,
                                                                                         const NodeView& n) -> Values {
    if (!n.on_host() || is_noop(n)) return on_tensors(t, n);
    if (is_host_scalar(t, n.input(0))) return {n.input(0)};
    const Value result = reduced(t, operation, n.ints(0), of_none);
    return {n.attr_int("keepdims") != 0 ? t.list({result}) : result};
  };
}

}  // namespace

void register_reduction_ops(Registry& r) {
  // axes was an attribute before 18, and of ReduceSum before 13; since then there is noop_with_empty_axes.
  r.op("ReduceSum").since(1, on_host("Add", 0, reduction("reduce_sum", exact))).reviewed_to(13);
  r.op("ReduceProd").since(1, on_host("Mul", 1, reduction("reduce_prod", exact))).reviewed_to(18);
  r.op("ReduceMax").since(1, on_host("Max", {}, extremum("reduce_max", /*is_min=*/false))).reviewed_to(20);
  r.op("ReduceMin").since(1, on_host("Min", {}, extremum("reduce_min", /*is_min=*/true))).reviewed_to(20);
  r.op("ReduceMean").since(1, reduce_mean).reviewed_to(18);
  r.op("ReduceL1").since(1, reduce_l1).reviewed_to(18);
  r.op("ReduceL2").since(1, reduction("reduce_l2", real)).reviewed_to(18);
  r.op("ReduceSumSquare").since(1, reduction("reduce_sum_square", exact_or_float)).reviewed_to(18);
  r.op("ReduceLogSum").since(1, reduction("reduce_log_sum", real)).reviewed_to(28);
  r.op("ReduceLogSumExp").since(1, reduction("reduce_log_sum_exp", real)).reviewed_to(28);
}

}  // namespace onnxtorch
