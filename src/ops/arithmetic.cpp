#include "ops/arithmetic.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "ops/host_ints.h"

namespace onnxtorch {
namespace {

using HostOperation = Value (*)(Translator&, const std::string&, const Value&, const Value&);

TranslateFunction joined(HostOperation on_host, TensorOperation on_tensors) {
  return [on_host, on_tensors = std::move(on_tensors)](Translator& t, const NodeView& n) {
    const bool stays = n.on_host();
    Value result = stays ? n.input(0) : n.tensor(0);
    for (size_t i = 1; i < n.input_count(); ++i) {
      result = stays ? on_host(t, std::string(n.schema()->name), result, n.input(i))
                     : on_tensors(t, result, n.tensor(i), n.element(0));
    }
    return Values{result};
  };
}

// Gives the items of operands that broadcast, a row for each item of the result; nothing where their number is not
// known.
std::optional<std::vector<Values>> rows(Translator& t, const Values& operands) {
  std::vector<Values> columns;
  for (const Value& operand : operands) {
    const auto items = t.items(operand);
    if (!items || items->empty()) return {};
    columns.push_back(*items);
  }
  size_t count = 1;
  for (const Values& column : columns) count = std::max(count, column.size());
  std::vector<Values> result(count);
  for (const Values& column : columns) {
    if (column.size() != 1 && column.size() != count) return {};  // the script says what is wrong
    for (size_t i = 0; i < count; ++i) result[i].push_back(column[std::min(i, column.size() - 1)]);
  }
  return result;
}

// Calls the script "int_…" on each item, so that what is known of one is not lost, or "ints_…" on lists of any
// length.
Value on_ints(Translator& t, const std::string& script, const std::vector<Arg>& leading, const Values& operands) {
  const auto call = [&](const std::string& prefix, const Values& values) {
    std::vector<Arg> args = leading;
    args.insert(args.end(), values.begin(), values.end());
    return t.call(prefix + script, args);
  };
  const auto is_scalar = [&](const Value& v) { return is_host_scalar(t, v); };
  if (const auto items = rows(t, operands)) {
    Values results;
    for (const Values& row : *items) results.push_back(call("int_", row));
    return std::ranges::all_of(operands, is_scalar) ? results[0] : t.list(results);
  }
  Values lists;
  for (const Value& v : operands) {
    if (t.bool_on_host(v)) {
      lists.push_back(is_scalar(v) ? t.list({v}) : v);
    } else {
      lists.push_back(t.ints(v));
    }
  }
  return call("ints_", lists);
}

}  // namespace

Value wrapped(Translator& t, Value v, ElementType type) {
  const ElementInfo& of = info(type);
  if (of.wrap == Wrap::None || of.wrap == Wrap::Bits64) return v;
  const int64_t mask = (int64_t{1} << of.bits) - 1;
  const Value low = t.call("aten::bitwise_and", {v, mask});
  if (of.wrap == Wrap::Unsigned) return low.as(type);
  const int64_t sign = int64_t{1} << (of.bits - 1);
  return t.call("aten::sub", {t.call("aten::bitwise_xor", {low, sign}), sign}).as(type);
}

Value ordered(Translator& t, Value v, ElementType type) {
  if (info(type).wrap != Wrap::Bits64) return v;
  return t.call("aten::bitwise_xor", {v, std::numeric_limits<int64_t>::min()}).as(type);
}

bool is_unsigned(ElementType type) { return info(type).name.starts_with("uint"); }

Value host_cast(Translator& t, const Value& v, ElementType type) {
  return type == ElementType::Int32 ? on_ints(t, "of_32_bits", {}, {v}).as(type) : v.as(type);
}

Value shape_arithmetic(Translator& t, const std::string& operation, const Value& a, const Value& b) {
  return host_cast(t, on_ints(t, "arithmetic", {operation}, {a, b}), b.type.element);
}

Value shape_comparison(Translator& t, const std::string& operation, const Value& a, const Value& b) {
  return on_ints(t, "comparison", {operation}, {a, b}).as(ElementType::Bool);
}

Value shape_where(Translator& t, const Value& condition, const Value& x, const Value& y) {
  return on_ints(t, "where", {}, {condition, x, y}).as(x.type);
}

TranslateFunction arithmetic(TensorOperation operation) { return joined(shape_arithmetic, std::move(operation)); }
TranslateFunction comparison(TensorOperation operation) { return joined(shape_comparison, std::move(operation)); }

TranslateFunction plain(std::string function) {
  return [function = std::move(function)](Translator& t, const NodeView& n) {
    const Values tensors = n.tensors();
    return Values{t.call(function, {tensors.begin(), tensors.end()})};
  };
}

TranslateFunction legacy_broadcast(TranslateFunction modern) {
  return [modern = std::move(modern)](Translator& t, const NodeView& n) {
    if (!n.has_attribute("axis")) return modern(t, n);
    const Value b = t.call("aligned", {n.tensor(0), n.tensor(1), n.attr_int("axis")}).as(n.input(1).type);
    return modern(t, NodeView(t, n.proto(), n.schema(), n.label(), {n.input(0), b}));
  };
}

}  // namespace onnxtorch
