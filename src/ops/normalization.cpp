// BatchNormalization, InstanceNormalization, GroupNormalization, LayerNormalization, RMSNormalization,
// LpNormalization, MeanVarianceNormalization, LRN, Dropout.
#include "ops/normalization.h"

#include <algorithm>
#include <optional>

#include "ops/cast.h"
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

using enum ElementType;

bool is_half(ElementType type) { return type == Float16 || type == Bfloat16; }

// --- BatchNormalization ---

// Gives the type to compute in: that of all inputs, or, where they differ, one that holds them all. The statistics of
// half precision are computed in float.
ElementType common_type(const Values& inputs, bool training) {
  const auto is = [](ElementType type) { return [type](const Value& v) { return v.type.element == type; }; };
  const ElementType type = inputs[0].type.element;
  if (std::ranges::all_of(inputs, is(type)) && !(training && is_half(type))) return type;
  return std::ranges::any_of(inputs, is(Double)) ? Double : Float;
}

// Gives the output and, in training, the running mean and variance, and the mean and variance of this batch.
Values normalized_batch(Translator& t, const NodeView& n, const Values& inputs, bool training) {
  const double momentum = n.attr_float("momentum"), epsilon = n.attr_float("epsilon");
  std::vector<Arg> args(inputs.begin(), inputs.end());
  if (training) {
    args.insert(args.end(), {momentum, epsilon});
    return t.call_all("batch_norm_training", args);
  }
  args.insert(args.end(), {false, momentum, epsilon, false});
  return t.call_all("aten::batch_norm", args);
}

Values batch_norm(Translator& t, const NodeView& n, bool training) {
  Values inputs = n.tensors();
  const ElementType type = common_type(inputs, training);
  for (Value& input : inputs) input = cast(t, input, type);

  // Each feature is a channel where not spatial; what has but one dimension has one channel.
  const bool spatial = !n.has_attribute("spatial") || n.attr_int("spatial") != 0;
  const auto sizes = t.known_sizes(inputs[0]);
  const bool reshaped = !spatial || !sizes || sizes->size() == 1;
  if (reshaped) {
    inputs[0] = spatial ? t.call("with_channels", {inputs[0]}) : t.call("aten::flatten", {inputs[0], 1});
    for (size_t i = 1; i < inputs.size(); ++i) inputs[i] = t.call("aten::flatten", {inputs[i]});
  }
  Values outputs = normalized_batch(t, n, inputs, training);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const size_t alike = i == 0 ? 0 : 3;  // the input of the same shape and type
    if (reshaped) outputs[i] = t.call("aten::view_as", {outputs[i], n.tensor(alike)});
    outputs[i] = cast(t, outputs[i].as(type), n.element(alike));
  }
  return outputs;
}

Values batch_norm_1(Translator& t, const NodeView& n) { return batch_norm(t, n, n.attr_int("is_test") == 0); }

// Translates BatchNormalization-7, whose number of outputs says whether it trains.
Values batch_norm_7(Translator& t, const NodeView& n) { return batch_norm(t, n, n.output_count() > 1); }

Values batch_norm_14(Translator& t, const NodeView& n) { return batch_norm(t, n, n.attr_int("training_mode") != 0); }

// --- Normalization within an instance ---

// Gives the type of stage one, where it is not the one that ATen computes in.
ElementType stash_type(const NodeView& n) {
  const ElementType type = n.element(0);
  const ElementType stash = n.has_attribute("stash_type") ? n.attr_element("stash_type") : type;
  return stash == type || (stash == Float && is_half(type)) ? Undefined : stash;
}

Value scaled(Translator& t, const Value& normalized, const Value& scale, const Value& bias) {
  const Value y = t.call("aten::mul", {normalized, scale});
  return bias.absent() ? y : t.call("aten::add", {y, bias});
}

Value group_norm(Translator& t, const NodeView& n, const Value& scale, const Value& bias) {
  const Value x = n.tensor(0);
  const auto call = [&](const Value& input, const Value& weight, const Value& shift) {
    return t.call("aten::group_norm", {input, n.attr_int("num_groups"), weight, shift, n.attr_float("epsilon"), false});
  };
  const ElementType stash = stash_type(n);
  if (stash == Undefined) return call(x, scale, bias);
  const Value normalized = cast(t, call(cast(t, x, stash), {}, {}).as(stash), x.type.element);
  const Value rank = t.call("aten::dim", {x});
  return scaled(t, normalized, t.call("along", {scale, 1, rank}), t.call("along", {bias, 1, rank}));
}

// Translates GroupNormalization-18, which has a scale and a bias for each group.
Values group_norm_18(Translator& t, const NodeView& n) {
  const auto of_channels = [&](size_t i) { return t.call("of_channels", {n.tensor(i), n.tensor(0)}); };
  return {group_norm(t, n, of_channels(1), of_channels(2))};
}

Values group_norm_21(Translator& t, const NodeView& n) { return {group_norm(t, n, n.tensor(1), n.tensor(2))}; }

// Gives the shape that is normalized, where a scale is known to have exactly that one.
std::optional<std::vector<int64_t>> shape_of_scale(Translator& t, const Value& x, const Value& scale, const Value& b,
                                                   int64_t axis) {
  const auto shape = t.known_shape(scale);
  if (!shape || (!b.absent() && t.known_shape(b) != shape)) return {};
  if (const auto sizes = t.known_sizes(x)) {
    const auto rank = static_cast<int64_t>(sizes->size()), first = axis < 0 ? axis + rank : axis;
    if (first < 0 || first > rank) return {};  // the script fails and says so
    return std::ranges::equal(sizes->begin() + first, sizes->end(), shape->begin(), shape->end()) ? shape
                                                                                                  : std::nullopt;
  }
  // A shape with no 1 in it has the dimensions of x.
  const bool exact = -axis == static_cast<int64_t>(shape->size()) && std::ranges::find(*shape, 1) == shape->end();
  return exact ? shape : std::nullopt;
}

}  // namespace

Value layer_norm(Translator& t, const Value& x, const Value& scale, const Value& b, int64_t axis, double epsilon) {
  if (const auto shape = shape_of_scale(t, x, scale, b, axis))
    return t.call("aten::layer_norm", {x, *shape, scale, b, epsilon, false});
  return t.call("layer_norm", {x, scale, b, axis, epsilon});
}

Values layer_norm_with_statistics(Translator& t, const Value& x, const Value& scale, const Value& b, int64_t axis,
                                  double epsilon) {
  const Values outputs = t.call_all("normalized", {x, axis, epsilon});
  return {scaled(t, cast(t, outputs[0].as(x.type), scale.type.element), scale, b), outputs[1].as(x.type),
          outputs[2].as(x.type)};
}

Value rms_norm(Translator& t, const Value& x, const Value& scale, int64_t axis, double epsilon) {
  const auto shape = shape_of_scale(t, x, scale, {}, axis);
  if (shape && x.type == scale.type) return t.call("aten::rms_norm", {x, *shape, scale, epsilon});
  const Value y = t.call("rms_normalized", {x, axis, epsilon}).as(x.type);
  return scaled(t, cast(t, y, scale.type.element), scale, {});
}

namespace {

Values layer_norm_17(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0), scale = n.tensor(1), b = n.tensor(2);
  const int64_t axis = n.attr_int("axis");
  const double epsilon = n.attr_float("epsilon");
  if (n.wants(1) || n.wants(2) || stash_type(n) != Undefined)
    return layer_norm_with_statistics(t, cast(t, x, n.attr_element("stash_type")), scale, b, axis, epsilon);
  return {layer_norm(t, x, scale, b, axis, epsilon)};
}

// Translates LayerNormalization-1, which is onnxruntime's: stash_type is the type of the statistics alone, and X may
// have another one than the rest.
Values layer_norm_1(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0), scale = n.tensor(1), b = n.tensor(2);
  const int64_t axis = n.attr_int("axis");
  const double epsilon = n.attr_float("epsilon");
  if (!n.wants(1) && !n.wants(2) && x.type == scale.type) return {layer_norm(t, x, scale, b, axis, epsilon)};
  const ElementType wide = x.type.element == Double ? Double : Float, stash = n.attr_element("stash_type");
  const Values outputs = layer_norm_with_statistics(t, cast(t, x, wide), scale, b, axis, epsilon);
  return {outputs[0], cast(t, outputs[1], stash), cast(t, outputs[2], stash)};
}

Values rms_norm_23(Translator& t, const NodeView& n) {
  const ElementType stash = stash_type(n);
  const Value x = cast(t, n.tensor(0), stash == Undefined ? n.element(0) : stash);
  return {rms_norm(t, x, n.tensor(1), n.attr_int("axis"), n.attr_float("epsilon"))};
}

// --- Others ---

Values mean_variance_norm(Translator& t, const NodeView& n, const Arg& axes, bool normalize_variance) {
  const ElementType type = n.element(0);
  const Value x = cast(t, n.tensor(0), is_half(type) ? Float : type);
  return {cast(t, t.call("mean_variance_normalization", {x, axes, normalize_variance}).as(x.type), type)};
}

Values mean_variance_norm_9(Translator& t, const NodeView& n) {
  return mean_variance_norm(t, n, n.attr_ints("axes"), true);
}

Values mean_variance_norm_1(Translator& t, const NodeView& n) {
  const Value rank = t.call("aten::dim", {n.tensor(0)});
  const Value axes = t.call("normalized_axes", {rank, n.attr_int("across_channels") != 0});
  return mean_variance_norm(t, n, axes, n.attr_int("normalize_variance") != 0);
}

Values lrn(Translator& t, const NodeView& n) {
  const ElementType type = n.element(0);
  const Value x = cast(t, n.tensor(0), is_half(type) ? Float : type);
  const Value y =
      t.call("lrn", {x, n.attr_int("size"), n.attr_float("alpha"), n.attr_float("beta"), n.attr_float("bias")});
  return {cast(t, y.as(x.type), type)};
}

// --- Dropout ---

// Gives the output and the mask, which is of bools.
Values dropout(Translator& t, const Value& x, const Arg& ratio, const Arg& training, const Arg& seed) {
  const ElementType type = x.type.element, wide = is_small_float(type) ? Float : type;
  const Values outputs = t.call_all("dropout", {cast(t, x, wide), ratio, training, seed});
  return {cast(t, outputs[0].as(wide), type), outputs[1].as(Bool)};
}

// Translates the versions without a seed. Before 10, the mask has the type of the output.
Values dropout_without_seed(Translator& t, const NodeView& n, bool training) {
  Values outputs = dropout(t, n.tensor(0), n.attr_float("ratio"), training, none);
  const ElementType mask = n.output_element(1);
  return {outputs[0], mask == Undefined ? outputs[1] : cast(t, outputs[1], mask)};
}

Values dropout_1(Translator& t, const NodeView& n) { return dropout_without_seed(t, n, n.attr_int("is_test") == 0); }

// Translates Dropout-7, which is for inference only.
Values dropout_7(Translator& t, const NodeView& n) { return dropout_without_seed(t, n, false); }

}  // namespace

Values dropout(Translator& t, const NodeView& n, const Value& x, size_t i) {
  const Arg ratio = n.has(i) ? Arg(n.number(i)) : Arg(0.5);
  const Arg training = n.has(i + 1) ? Arg(n.boolean(i + 1)) : Arg(false);
  return dropout(t, x, ratio, training, n.has_attribute("seed") ? Arg(n.attr_int("seed")) : Arg(none));
}

namespace {

Values dropout_12(Translator& t, const NodeView& n) { return dropout(t, n, n.tensor(0), 1); }

}  // namespace

void register_normalization_ops(Registry& r) {
  // BatchNormalization has spatial before 9.
  r.op("BatchNormalization").since(1, batch_norm_1).since(7, batch_norm_7).since(14, batch_norm_14).reviewed_to(15);
  r.op("InstanceNormalization").since(1, script("instance_normalization")).reviewed_to(22);
  r.op("GroupNormalization").since(18, group_norm_18).since(21, group_norm_21).reviewed_to(21);
  r.op("LayerNormalization").since(1, layer_norm_1).since(17, layer_norm_17).reviewed_to(17);
  r.op("RMSNormalization").since(23, rms_norm_23).reviewed_to(23);
  r.op("LpNormalization").since(1, script("lp_normalization")).reviewed_to(22);
  r.op("MeanVarianceNormalization").since(1, mean_variance_norm_1).since(9, mean_variance_norm_9).reviewed_to(13);
  r.op("LRN").since(1, lrn).reviewed_to(13);
  r.op("Dropout").since(1, dropout_1).since(7, dropout_7).since(12, dropout_12).reviewed_to(22);
}

}  // namespace onnxtorch
