// The operators that arrange elements anew, or make tensors: Concat, Split, Slice, Transpose, Tile, Pad, Constant,
// OneHot, …
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <onnx/onnx-ml.pb.h>

#include <algorithm>

#include "ops/host_ints.h"
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// --- Joining and cutting ---

Value concat_ints(Translator& t, const NodeView& n) {
  Values all;
  for (const Value& input : n.inputs()) {
    const auto items = t.items(input);
    if (!items) {
      Value joined = n.ints(0);
      for (size_t i = 1; i < n.input_count(); ++i) joined = t.call("aten::add", {joined, n.ints(i)});
      return joined;
    }
    all.insert(all.end(), items->begin(), items->end());
  }
  return int_list(t, all);
}

Values concat(Translator& t, const NodeView& n) {
  if (n.on_host()) return {concat_ints(t, n)};
  return {t.call("aten::cat", {n.tensors(), n.has_attribute("axis") ? n.attr_int("axis") : 1})};
}

Values split(Translator& t, const NodeView& n) {
  const bool on_host = t.on_host(n.input(0));
  const Value x = on_host ? n.input(0) : n.tensor(0);
  const int64_t axis = n.has_attribute("axis") ? n.attr_int("axis") : 0;
  const Value size = on_host ? t.call("aten::len", {x}) : t.call("aten::size", {x, axis});
  Value parts = ints_or_attribute(t, n, 1, "split");
  if (n.has_attribute("num_outputs") && n.attr_int("num_outputs") != static_cast<int64_t>(n.output_count()))
    n.fail("it has " + std::to_string(n.output_count()) + " outputs, but num_outputs is " +
           std::to_string(n.attr_int("num_outputs")));
  if (parts.absent()) parts = t.call("equal_parts", {size, static_cast<int64_t>(n.output_count())});
  const Value borders = t.call("split_borders", {size, parts});
  Values outputs;
  for (int64_t i = 0; i < static_cast<int64_t>(n.output_count()); ++i) {
    const Value start = t.call("aten::__getitem__", {borders, i});
    const Value end = t.call("aten::__getitem__", {borders, i + 1});
    outputs.push_back(on_host ? t.call("aten::slice", {x, start, end}) : t.call("aten::slice", {x, axis, start, end}));
  }
  return outputs;
}

// Translates Slice. Where all but the values of starts and ends is known, it is one call an axis.
Values slice(Translator& t, const NodeView& n) {
  const Value starts = ints_or_attribute(t, n, 1, "starts");
  const Value ends = ints_or_attribute(t, n, 2, "ends");
  const Value axes = ints_or_attribute(t, n, 3, "axes");
  const Value steps = n.ints(4);
  const auto start = t.items(starts), end = t.items(ends);
  const auto axis = t.known_ints(axes), step = t.known_ints(steps);
  if (!start || !end || (!axis && !axes.absent()) || (!step && !steps.absent())) {
    return {t.call("slice", {n.tensor(0), starts, ends, axes, steps})};
  }
  const size_t count = start->size();
  if (end->size() != count || (axis && axis->size() != count) || (step && step->size() != count)) {
    n.fail("starts, ends, axes and steps must be equally long");
  }
  const bool on_host =
      t.on_host(n.input(0)) && (!step || std::ranges::all_of(*step, [](int64_t by) { return by > 0; }));
  Value x = on_host ? n.input(0) : n.tensor(0);
  for (size_t i = 0; i < count; ++i) {
    const int64_t by = step ? (*step)[i] : 1;
    const int64_t along = axis ? (*axis)[i] : static_cast<int64_t>(i);
    if (on_host) {
      x = t.call("aten::slice", {x, (*start)[i], (*end)[i], by});
    } else {
      x = t.call(by > 0 ? "aten::slice" : "slice_backward", {x, along, (*start)[i], (*end)[i], by});
    }
  }
  return {x};
}

Values center_crop_pad(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0);
  const Arg axes = n.has_attribute("axes") ? Arg(n.attr_ints("axes")) : Arg(none);
  return {t.call("aten::constant_pad_nd", {x, t.call("center_pads", {t.call("aten::size", {x}), n.ints(1), axes}), 0})};
}

// --- Arranging ---

// Gives the permutation, which must be of all dimensions of x, as far as their number is known.
std::vector<int64_t> permutation(const Translator& t, const NodeView& n, const Value& x) {
  const std::vector<int64_t> perm = n.attr_ints("perm");
  std::vector<int64_t> ascending = perm;
  std::ranges::sort(ascending);
  for (size_t i = 0; i < ascending.size(); ++i) {
    if (ascending[i] != static_cast<int64_t>(i)) n.fail("perm is no permutation of the dimensions");
  }
  const auto sizes = t.known_sizes(x);
  if (sizes && sizes->size() != perm.size())
    n.fail("perm is of " + std::to_string(perm.size()) + " dimensions, the input has " + std::to_string(sizes->size()));
  return perm;
}

Values transpose(Translator& t, const NodeView& n) {
  if (t.on_host(n.input(0))) return {n.input(0)};
  const Value x = n.tensor(0);
  if (n.has_attribute("perm")) return {t.call("aten::permute", {x, permutation(t, n, x)})};
  return {t.call("aten::permute", {x, t.call("reversed_axes", {t.call("aten::dim", {x})})})};
}

Values tile(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0), repeats = n.ints(1);
  const auto sizes = t.known_sizes(x);
  const auto count = t.known_shape(repeats);
  if (sizes && count && count->size() == 1 && count->at(0) != static_cast<int64_t>(sizes->size())) {
    n.fail("there are " + std::to_string(count->at(0)) + " repeats for " + std::to_string(sizes->size()) +
           " dimensions");
  }
  return {t.call("aten::repeat", {x, repeats})};
}

// Translates Tile-1, which repeats along one axis.
Values tile_1(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0);
  const Value repeats = t.call("repeats_along", {t.call("aten::dim", {x}), n.integer(2), n.integer(1)});
  return {t.call("aten::repeat", {x, repeats})};
}

bool is_column_row_depth(const NodeView& n) { return n.has_attribute("mode") && n.attr_string("mode") == "CRD"; }

Values depth_to_space(Translator& t, const NodeView& n) {
  return {t.call(is_column_row_depth(n) ? "aten::pixel_shuffle" : "depth_to_space",
                 {n.tensor(0), n.attr_int("blocksize")})};
}

Values space_to_depth(Translator& t, const NodeView& n) {
  return {t.call(is_column_row_depth(n) ? "aten::pixel_unshuffle" : "space_to_depth",
                 {n.tensor(0), n.attr_int("blocksize")})};
}

Values trilu(Translator& t, const NodeView& n) {
  const Arg k = n.has(1) ? Arg(n.integer(1)) : Arg(0);
  return {t.call(n.attr_int("upper") ? "aten::triu" : "aten::tril", {n.tensor(0), k})};
}

// --- Pad ---

// Gives the fill value, which was an attribute before version 11, always a float.
Arg fill_value(Translator& t, const NodeView& n) {
  if (n.has(2)) return t.call("aten::item", {n.tensor(2)});
  return n.has_attribute("value") ? Arg(n.attr_float("value")) : Arg(0);
}

Values pad(Translator& t, const NodeView& n) {
  const Value pads = ints_or_attribute(t, n, 1, n.has_attribute("paddings") ? "paddings" : "pads");
  const Value x = n.tensor(0);
  const Value per_axis = t.call("aten_pads", {t.call("aten::dim", {x}), pads, n.ints(3)});
  const std::string mode = n.attr_string("mode");
  if (mode == "constant") return {t.call("aten::constant_pad_nd", {x, per_axis, fill_value(t, n)})};
  if (mode != "reflect" && mode != "edge" && mode != "wrap") n.fail("unknown mode \"" + mode + "\"");
  return {t.call("pad_from_inside", {x, per_axis, mode, t.device()})};
}

// --- Making ---

Values constant(Translator& t, const NodeView& n) {
  const auto given = [&](const char* name) { return n.has_attribute(name); };
  if (given("value")) return {n.attr_tensor("value")};
  if (given("sparse_value")) return {t.constant(n.attribute("sparse_value")->sparse_tensor())};
  if (given("value_int"))
    return {t.constant(at::scalar_tensor(n.attr_int("value_int"), c10::kLong), ElementType::Int64)};
  if (given("value_ints")) return {t.constant(at::tensor(n.attr_ints("value_ints"), c10::kLong), ElementType::Int64)};
  if (given("value_float"))
    return {t.constant(at::scalar_tensor(n.attr_float("value_float"), c10::kFloat), ElementType::Float)};
  if (given("value_floats"))
    return {t.constant(at::tensor(n.attr_floats("value_floats"), c10::kFloat), ElementType::Float)};
  if (given("value_string")) return {t.string(n.attr_string("value_string"))};
  if (given("value_strings")) return {t.strings(n.attr_strings("value_strings"))};
  n.fail("one of its attributes must be given");
}

Values constant_of_shape(Translator& t, const NodeView& n) {
  const Value value =
      n.has_attribute("value") ? n.attr_tensor("value") : t.constant(at::zeros({1}, c10::kFloat), ElementType::Float);
  const ElementType type = value.type.element;
  const Value element = t.call("aten::item", {value});
  return {t.call("aten::full", {n.ints(0), element, kw("dtype", type), kw("device", t.device())}).as(type)};
}

Values eye_like(Translator& t, const NodeView& n) {
  const ElementType type = n.has_attribute("dtype") ? n.attr_element("dtype") : n.element(0);
  return {t.call("eye_like", {n.tensor(0), n.attr_int("k"), type}).as(type)};
}

// Translates Range. Elements of 16 bits are computed in `stash_type`, other floats in their own type.
Values range(Translator& t, const NodeView& n) {
  const ElementType type = n.element(0);
  if (!is_floating(type)) {
    return {t.call("range_of_ints", {n.integer(0), n.integer(1), n.integer(2), type, t.device()}).as(type)};
  }
  const bool stashed = info(type).bits == 16 && n.has_attribute("stash_type");
  const ElementType computed = stashed ? n.attr_element("stash_type") : type;
  return {t.call("range_of_floats", {n.tensor(0), n.tensor(1), n.tensor(2), computed, type}).as(type)};
}

Values one_hot(Translator& t, const NodeView& n, bool negative_indices) {
  // A uint64 past the largest int64 is stored as a negative number, but is none.
  negative_indices = negative_indices && n.element(0) != ElementType::Uint64;
  const Value values = n.tensor(2);
  return {t.call("one_hot", {n.tensor(0), n.integer(1), values, n.attr_int("axis"), negative_indices}).as(values.type)};
}

Values one_hot_9(Translator& t, const NodeView& n) { return one_hot(t, n, false); }
Values one_hot_11(Translator& t, const NodeView& n) { return one_hot(t, n, true); }

}  // namespace

void register_tensor_ops(Registry& r) {
  r.op("Concat").since(1, concat).reviewed_to(13);  // axis was 1 by default before 4
  r.op("Split").since(1, split).reviewed_to(18);    // split was an attribute before 13; 18 has num_outputs
  r.op("Slice").since(1, slice).reviewed_to(13);    // starts, ends and axes were attributes before 10; 10 has steps
  r.op("DynamicSlice").since(1, slice);
  r.op("CenterCropPad").since(18, center_crop_pad).reviewed_to(18);
  r.op("Transpose").since(1, transpose).reviewed_to(25);
  r.op("Tile").since(1, tile_1).since(6, tile).reviewed_to(13);
  r.op("DepthToSpace").since(1, depth_to_space).reviewed_to(28);  // 11 has mode
  r.op("SpaceToDepth").since(1, space_to_depth).reviewed_to(28);  // 28 has mode
  r.op("Trilu").since(14, trilu).reviewed_to(14);
  r.op("Pad").since(1, pad).reviewed_to(25);  // pads was paddings before 2, an attribute before 11; 18 has axes
  r.op("Constant").since(1, constant).reviewed_to(25);  // 11 has sparse_value, 12 value_int, value_floats and the like
  r.op("ConstantOfShape").since(9, constant_of_shape).reviewed_to(25);
  r.op("EyeLike").since(9, eye_like).reviewed_to(22);
  r.op("Range").since(11, range).reviewed_to(27);  // 27 has stash_type
  r.op("OneHot").since(9, one_hot_9).since(11, one_hot_11).reviewed_to(28);
}

}  // namespace onnxtorch
