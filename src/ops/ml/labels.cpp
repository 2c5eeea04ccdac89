// LabelEncoder, CategoryMapper, OneHotEncoder: look-ups of elements among keys.
#include <ATen/ops/arange.h>
#include <ATen/ops/scalar_tensor.h>

#include "ops/cast.h"
#include "ops/ml/ml.h"

namespace onnxtorch {
namespace {

using enum ElementType;

// Gives what stands for a value of a type where a key is not found.
Value default_value(Translator& t, const NodeView& n, ElementType type) {
  if (n.has_attribute("default_tensor")) return n.attr_tensor("default_tensor");
  if (type == String) return t.string(n.attr_string("default_string"));
  const auto number = is_floating(type) ? c10::Scalar(n.attr_float("default_float")) : n.attr_int("default_int64");
  return t.constant(at::scalar_tensor(number, storage_dtype(type)), type);
}

// Gives for each element of input 0 the value of its key. The last of equal keys counts.
Value mapped(Translator& t, const NodeView& n, const Stored& keys, const Stored& values) {
  if (keys.type != n.element(0)) n.fail("the keys and the input differ in type");
  if (keys.tensor.sizes() != values.tensor.sizes()) n.fail("there are not as many keys as values");
  // Keys are found faster in ascending order.
  const auto [ascending, order] = keys.tensor.sort(/*stable=*/std::optional(true));
  const Stored in_order{values.tensor.index_select(0, order), values.type};
  const Stored sorted{ascending, keys.type};
  return t
      .call("onnx_torch::map_keys",
            {n.tensor(0), stored_constant(t, sorted), stored_constant(t, in_order), default_value(t, n, values.type)})
      .as(values.type);
}

// Maps strings to integers, or back.
Values between(Translator& t, const NodeView& n, const Stored& strings, const Stored& ints) {
  return {n.element(0) == String ? mapped(t, n, strings, ints) : mapped(t, n, ints, strings)};
}

Values category_mapper(Translator& t, const NodeView& n) {
  return between(t, n, listed(t, n, "cats_strings"), listed(t, n, "cats_int64s"));
}

// Translates LabelEncoder-1, which maps between strings and their positions.
Values label_encoder_1(Translator& t, const NodeView& n) {
  const Stored classes = listed(t, n, "classes_strings");
  return between(t, n, classes, {at::arange(classes.tensor.numel()), Int64});
}

Values label_encoder_2(Translator& t, const NodeView& n) {
  const Stored keys = first_listed(t, n, {"keys_strings", "keys_int64s", "keys_floats", "keys_tensor"});
  const Stored values = first_listed(t, n, {"values_strings", "values_int64s", "values_floats", "values_tensor"});
  return {mapped(t, n, keys, values)};
}

// Translates OneHotEncoder. Numbers of any type are looked up as integers.
Values one_hot_encoder(Translator& t, const NodeView& n) {
  const Stored categories = first_listed(t, n, {"cats_strings", "cats_int64s"});
  const Value x = n.element(0) == String ? n.tensor(0) : cast(t, n.tensor(0), Int64);
  if (x.type.element != categories.type) n.fail("the categories and the input differ in type");
  return {t.call("one_hot_encoder", {x, stored_constant(t, categories), n.attr_int("zeros") != 0})};
}

}  // namespace

void register_ml_label_ops(Registry& r) {
  // LabelEncoder-4 has keys_tensor, values_tensor and default_tensor.
  r.op(kMl, "LabelEncoder").since(1, label_encoder_1).since(2, label_encoder_2).reviewed_to(4);
  r.op(kMl, "CategoryMapper").since(1, category_mapper);
  r.op(kMl, "OneHotEncoder").since(1, one_hot_encoder);
}

}  // namespace onnxtorch
