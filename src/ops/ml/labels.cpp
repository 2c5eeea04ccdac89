// LabelEncoder, CategoryMapper, OneHotEncoder: look-ups of elements among keys.
#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>

#include "ops/cast.h"
#include "ops/ml/ml.h"

namespace onnxtorch {
namespace {

using enum ElementType;

// For each element of x the value of its key. The last of equal keys counts.
Value mapped(Translator& t, const Value& x, const Value& keys, const Value& values, const Value& otherwise) {
  // In ascending order keys are found faster; this is a constant where it is not too large.
  const Values sorted = t.call_all("aten::sort", {keys, kw("stable", true)});
  const Value in_order = t.call("aten::index_select", {values, 0, sorted[1]});
  return t.call("onnx_torch::map_keys", {x, sorted[0], in_order, otherwise}).as(values.type);
}

// What stands for a value of a type where a key is not found.
Value default_value(Translator& t, const NodeView& n, ElementType type) {
  if (n.has_attribute("default_tensor")) return n.attr_tensor("default_tensor");
  if (type == String) return t.string(n.attr_string("default_string"));
  const auto number = [&] { return is_floating(type) ? c10::Scalar(n.attr_float("default_float")) : n.attr_int("default_int64"); };
  return t.constant(at::scalar_tensor(number(), storage_dtype(type)), type);
}

// From strings to integers, or back.
Values between(Translator& t, const NodeView& n, const Value& strings, const Value& ints) {
  const bool from_strings = n.element(0) == String;
  const Value& keys = from_strings ? strings : ints;
  const Value& values = from_strings ? ints : strings;
  return {mapped(t, n.tensor(0), keys, values, default_value(t, n, values.type.element))};
}

Values category_mapper(Translator& t, const NodeView& n) {
  return between(t, n, listed(t, n, "cats_strings"), listed(t, n, "cats_int64s"));
}

// LabelEncoder-1: between strings and their positions.
Values label_encoder_1(Translator& t, const NodeView& n) {
  const auto count = static_cast<int64_t>(n.attr_strings("classes_strings").size());
  return between(t, n, listed(t, n, "classes_strings"), t.constant(at::arange(count), Int64));
}

Values label_encoder_2(Translator& t, const NodeView& n) {
  const Value keys = first_listed(t, n, {"keys_strings", "keys_int64s", "keys_floats", "keys_tensor"});
  const Value values = first_listed(t, n, {"values_strings", "values_int64s", "values_floats", "values_tensor"});
  if (keys.type != n.input(0).type) n.fail("the keys are " + keys.type.str() + ", the input is " + n.input(0).type.str());
  return {mapped(t, n.tensor(0), keys, values, default_value(t, n, values.type.element))};
}

// Numbers of any type are looked up as integers.
Values one_hot_encoder(Translator& t, const NodeView& n) {
  const Value categories = first_listed(t, n, {"cats_strings", "cats_int64s"});
  const Value x = n.element(0) == String ? n.tensor(0) : cast(t, n.tensor(0), Int64);
  if (x.type.element != categories.type.element) n.fail("the categories and the input differ in type");
  return {t.call("one_hot_encoder", {x, categories, n.attr_int("zeros") != 0})};
}

}  // namespace

void register_ml_label_ops(Registry& r) {
  r.op(kMl, "LabelEncoder").since(1, label_encoder_1).since(2, label_encoder_2).reviewed_to(4);
  r.op(kMl, "CategoryMapper").since(1, category_mapper);
  r.op(kMl, "OneHotEncoder").since(1, one_hot_encoder);
}

}  // namespace onnxtorch
