// The operators that pick or place elements by index: Gather, Scatter and their kin, Compress, NonZero, TopK, ArgMax,
// ArgMin, Unique, ReverseSequence, TensorScatter.
#include <algorithm>

#include "ops/arithmetic.h"
#include "ops/host_ints.h"
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// --- Gather ---

// Makes indices count from the start, as most of ATen's operators want them; ONNX's count from the end where they are
// negative.
Value from_start(Translator& t, const Value& indices, const Value& x, int64_t axis) {
  const auto known = t.known_ints(indices);
  if (known && std::ranges::all_of(*known, [](int64_t i) { return i >= 0; })) return indices;
  return t.call("from_start", {indices, t.call("aten::size", {x, axis})});
}

// Calls ATen's index_select. Where the indices are not known to count from the start, it is a script that takes others.
Value index_select(Translator& t, const Value& data, int64_t axis, const Value& indices) {
  if (t.known_ints(indices)) {
    const Value positions = from_start(t, indices, data, axis);
    if (t.known_ints(positions)) return t.call("aten::index_select", {data, axis, positions});
  }
  return t.call("index_select_from_either_end", {data, axis, indices});
}

Value gather_ints(Translator& t, const NodeView& n) {
  const Value data = n.ints(0);
  const auto shape = t.known_shape(n.input(1));
  if (shape && shape->empty()) return t.call("aten::__getitem__", {data, n.integer(1)});
  return t.call("gather_ints", {data, n.ints(1)});
}

// Picks elements that the host knows, where it knows which ones: they need not be picked at run time.
std::optional<Value> pick_ints(Translator& t, const NodeView& n) {
  const auto items = t.items(n.input(0));
  const auto indices = t.known_ints(n.input(1));
  if (!items || !indices) return {};
  const auto size = static_cast<int64_t>(items->size());
  Values picked;
  for (const int64_t i : *indices) {
    if (i < -size || i >= size)
      n.fail("the index " + std::to_string(i) + " lies outside of " + std::to_string(size) + " elements");
    picked.push_back((*items)[i < 0 ? i + size : i]);
  }
  return t.known_shape(n.input(1))->empty() ? picked[0] : int_list(t, picked);
}

Values gather(Translator& t, const NodeView& n) {
  if (n.on_host()) {
    if (const auto picked = pick_ints(t, n)) return {*picked};
    return {gather_ints(t, n)};
  }
  const Value data = n.tensor(0);
  const int64_t axis = n.attr_int("axis");
  const auto sizes = t.known_sizes(n.input(1));
  if (sizes && sizes->empty() && (t.on_host(n.input(1)) || t.known_ints(n.input(1)))) {
    return {t.call("aten::select", {data, axis, n.integer(1)})};
  }
  const Value indices = n.tensor(1);
  if (sizes && sizes->size() == 1) return {index_select(t, data, axis, indices)};
  const Value row = t.call("aten::reshape", {indices, std::vector<int64_t>{-1}});
  return {t.call("of_indices", {index_select(t, data, axis, row), data, axis, indices})};
}

Values gather_elements(Translator& t, const NodeView& n) {
  return {t.call("gather_from_either_end", {n.tensor(0), n.attr_int("axis"), n.tensor(1)})};
}

Values gather_nd(Translator& t, const NodeView& n) {
  const int64_t batch_dims = n.has_attribute("batch_dims") ? n.attr_int("batch_dims") : 0;
  return {t.call("gather_nd", {n.tensor(0), n.tensor(1), batch_dims})};
}

// --- Scatter ---

// Gives ATen's name of a reduction; nothing for "none".
std::optional<std::string> reduction(const NodeView& n) {
  const std::string name = n.has_attribute("reduction") ? n.attr_string("reduction") : "none";
  if (name == "none") return {};
  if (name == "add") return "sum";
  if (name == "mul") return "prod";
  if (name == "max") return "amax";
  if (name == "min") return "amin";
  n.fail("unknown reduction \"" + name + "\"");
}

// Calls a scatter with reduction on elements of any type.
template <typename Scatter>
Value reduce(Translator& t, const NodeView& n, const std::string& how, const Scatter& scatter) {
  const ElementType type = n.element(0);
  if (how == "sum" || how == "prod") return wrapped(t, scatter(n.tensor(0), n.tensor(2)), type);
  return ordered(t, scatter(ordered(t, n.tensor(0), type), ordered(t, n.tensor(2), type)), type);
}

Values scatter_elements(Translator& t, const NodeView& n) {
  const int64_t axis = n.attr_int("axis");
  const auto how = reduction(n);
  if (!how) return {t.call("scatter_from_either_end", {n.tensor(0), axis, n.tensor(1), n.tensor(2)})};
  const Value indices = from_start(t, n.tensor(1), n.tensor(0), axis);
  return {reduce(t, n, *how, [&](const Value& data, const Value& updates) {
    return t.call("aten::scatter_reduce", {data, axis, indices, updates, *how});
  })};
}

Values scatter_nd(Translator& t, const NodeView& n) {
  const auto how = reduction(n);
  if (!how) return {t.call("scatter_nd", {n.tensor(0), n.tensor(1), n.tensor(2)})};
  return {reduce(t, n, *how, [&](const Value& data, const Value& updates) {
    return t.call("scatter_nd_reduce", {data, n.tensor(1), updates, *how});
  })};
}

// --- Order ---

Values arg_extreme(Translator& t, const NodeView& n, const std::string& how) {
  const Value x = ordered(t, n.tensor(0), n.element(0));
  const int64_t axis = n.attr_int("axis");
  const bool keepdims = n.attr_int("keepdims") != 0;
  if (!n.has_attribute("select_last_index") || n.attr_int("select_last_index") == 0) {
    return {t.call("aten::" + how, {x, axis, keepdims})};
  }
  const Value from_end =
      t.call("aten::" + how, {t.call("aten::flip", {x, std::vector<int64_t>{axis}}), axis, keepdims});
  return {t.call("aten::rsub", {from_end, t.call("aten::sub", {t.call("aten::size", {x, axis}), 1})})};
}

Values arg_max(Translator& t, const NodeView& n) { return arg_extreme(t, n, "argmax"); }
Values arg_min(Translator& t, const NodeView& n) { return arg_extreme(t, n, "argmin"); }

// Tells whether 32 bits hold the order of a type's elements.
bool fits_32_bits(ElementType type) { return info(type).bits <= 32; }

Values top_k(Translator& t, const NodeView& n) {
  const ElementType type = n.element(0);
  const Value k = n.has(1) ? n.integer(1) : t.scalar(n.attr_int("k"));
  const bool largest = !n.has_attribute("largest") || n.attr_int("largest") != 0;
  const Value x = ordered(t, n.tensor(0), type);
  Values result =
      t.call_all(fits_32_bits(type) ? "top_k_by_key" : "top_k_by_sort", {x, k, n.attr_int("axis"), largest});
  return {ordered(t, result[0], type), result[1]};
}

Values unique(Translator& t, const NodeView& n) {
  const ElementType type = n.element(0);
  const Arg axis = n.has_attribute("axis") ? Arg(n.attr_int("axis")) : Arg(none);
  const bool sorted = n.attr_int("sorted") != 0;
  if (type == ElementType::String) {
    return t.call_all("onnx_torch::unique_strings", {t.string_pool(), n.tensor(0), axis, sorted});
  }
  return t.call_all("onnx_torch::unique", {n.tensor(0), axis, sorted, type == ElementType::Uint64});
}

// --- Others ---

Values non_zero(Translator& t, const NodeView& n) {
  return {t.call("aten::t", {t.call("aten::nonzero", {n.tensor(0)})})};
}

}  // namespace

void register_indexing_ops(Registry& r) {
  r.op("Gather").since(1, gather).reviewed_to(13);
  r.op("GatherElements").since(11, gather_elements).reviewed_to(13);
  r.op("GatherND").since(11, gather_nd).reviewed_to(13);  // 12 has batch_dims
  r.op("Scatter").since(9, scatter_elements).reviewed_to(11);
  r.op("ScatterElements").since(11, scatter_elements).reviewed_to(18);  // 16 has reduction, 18 its max and min
  r.op("ScatterND").since(11, scatter_nd).reviewed_to(18);              // 16 has reduction, 18 its max and min
  r.op("TensorScatter").since(24, script("tensor_scatter")).reviewed_to(24);
  r.op("ReverseSequence").since(10, script("reverse_sequence")).reviewed_to(28);
  r.op("Compress").since(9, script("compress")).reviewed_to(28);
  r.op("NonZero").since(9, non_zero).reviewed_to(13);
  r.op("ArgMax").since(1, arg_max).reviewed_to(13);  // 12 has select_last_index
  r.op("ArgMin").since(1, arg_min).reviewed_to(13);  // 12 has select_last_index
  r.op("TopK").since(1, top_k).reviewed_to(24);      // k was an attribute before 10; 11 has largest and sorted
  r.op("Unique").since(11, unique).reviewed_to(28);
}

}  // namespace onnxtorch
