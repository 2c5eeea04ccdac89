#include "ops/ml/ml.h"

#include <ATen/ops/tensor.h>
#include <onnx/onnx-ml.pb.h>

#include "import/tensor_proto.h"
#include "ops/cast.h"
#include "ops/ops.h"

namespace onnxtorch {
namespace {

at::Tensor string_ids(Translator& t, const std::vector<std::string>& texts) {
  std::vector<int64_t> ids;
  for (const std::string& text : texts) ids.push_back(t.string_id(text));
  return at::tensor(ids);
}

int64_t count(const Translator& t, const Value& labels) { return t.known_shape(labels)->at(0); }

// Gives the label that ranks highest. A string's default, like that of a number, is stored as 0: it is the id of "".
Value highest(Translator& t, const Value& ranking, const Value& labels) {
  if (count(t, labels) != 1) return t.call("label_of_highest", {ranking, labels});
  const Value column = t.call("aten::select", {ranking, 1, 0});
  return t.call("aten::where", {t.call("aten::ge", {column, 0}), labels, 0});
}

}  // namespace

Stored listed(Translator& t, const NodeView& n, std::string_view name, ElementType type) {
  const onnx::AttributeProto* attribute = n.attribute(name);
  if (!attribute) n.fail("the attribute \"" + std::string(name) + "\" is missing");
  switch (attribute->type()) {
    case onnx::AttributeProto::INTS:
      return {at::tensor(n.attr_ints(name)), ElementType::Int64};
    case onnx::AttributeProto::FLOATS:
      return {at::tensor(n.attr_floats(name), storage_dtype(type)), type};
    case onnx::AttributeProto::STRINGS:
      return {string_ids(t, n.attr_strings(name)), ElementType::String};
    default:
      return {t.stored(attribute->t()), element_type(attribute->t())};
  }
}

Value list_constant(Translator& t, const NodeView& n, std::string_view name, ElementType type) {
  return n.has_attribute(name) ? stored_constant(t, listed(t, n, name, type)) : Value{};
}

Stored first_listed(Translator& t, const NodeView& n, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (n.has_attribute(name)) return listed(t, n, name);
  }
  n.fail("one of the attributes " + names.front() + " … " + names.back() + " must be given");
}

ElementType computed_type(const NodeView& n) {
  const ElementType type = n.element(0);
  return type == ElementType::Float || type == ElementType::Float16 ? ElementType::Float : ElementType::Double;
}

Value features(Translator& t, const NodeView& n) { return cast(t, n.tensor(0), computed_type(n)); }

Value post_transform(Translator& t, const NodeView& n, const Value& scores, const std::string& how) {
  if (how == "NONE") return scores;
  if (how == "SOFTMAX") return t.call("aten::softmax", {scores, -1});
  if (how == "LOGISTIC") return t.call("aten::sigmoid", {scores});
  if (how == "SOFTMAX_ZERO") return t.call("softmax_zero", {scores});
  if (how == "PROBIT") return t.call("probit", {scores});
  n.fail("post_transform is NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT, not " + how);
}

Value scores_of_classes(Translator& t, const Value& scores, const Value& labels) {
  return count(t, labels) == 2 ? t.call("scores_of_both", {scores}) : scores;
}

Values classified(Translator& t, const NodeView& n, const Value& scores, const Value& ranking, const Value& labels,
                  ElementType type) {
  const Value y = post_transform(t, n, scores, n.attr_string("post_transform"));
  return {highest(t, ranking, labels).as(labels.type), cast(t, y.as(type), ElementType::Float)};
}

void register_ml_ops(Registry& r) {
  register_ml_feature_ops(r);
  register_ml_label_ops(r);
  register_ml_map_ops(r);
  register_ml_linear_ops(r);
  register_ml_svm_ops(r);
  register_ml_tree_ops(r);
}

}  // namespace onnxtorch
