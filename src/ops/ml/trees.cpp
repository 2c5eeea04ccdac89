// TreeEnsemble, TreeEnsembleRegressor, TreeEnsembleClassifier.
#include <ATen/core/ivalue.h>
#include <ATen/ops/tensor.h>
#include <onnx/onnx-ml.pb.h>

#include <algorithm>
#include <functional>

#include "kernels/standard/tree_ensemble.h"
#include "ops/cast.h"
#include "ops/ml/ml.h"

namespace onnxtorch {
namespace {

using at::Tensor;

std::vector<int64_t> ints_or_none(const NodeView& n, const char* name) {
  return n.has_attribute(name) ? n.attr_ints(name) : std::vector<int64_t>{};
}

// Gives the tensor of the attribute `name`, or an undefined one.
Tensor tensor_or_none(Translator& t, const NodeView& n, const std::string& name) {
  return n.has_attribute(name) ? t.stored(n.attribute(name)->t()) : Tensor();
}

// Gives a list of floats, or the tensor of the attribute whose name ends in _as_tensor; undefined where there is
// neither.
Tensor floats_or_none(Translator& t, const NodeView& n, const std::string& name) {
  if (n.has_attribute(name)) return at::tensor(n.attr_floats(name), c10::kDouble);
  return tensor_or_none(t, n, name + "_as_tensor");
}

Value votes(Translator& t, const NodeView& n, const auto& attributes, ElementType type) {
  const auto ensemble = c10::make_intrusive<TreeEnsemble>(tree_tables(attributes, storage_dtype(type)));
  return t.call("onnx_torch::tree_ensemble", {n.tensor(0), t.object(ensemble)}).as(type);
}

// --- TreeEnsemble ---

std::string named(const NodeView& n, const char* attribute, const std::vector<std::string>& names) {
  const auto number = static_cast<size_t>(n.attr_int(attribute));
  if (number >= names.size()) n.fail(std::string(attribute) + " is not in 0.." + std::to_string(names.size() - 1));
  return names[number];
}

Values tree_ensemble(Translator& t, const NodeView& n) {
  const TreeEnsembleAttributes attributes{
      .nodes_modes = tensor_or_none(t, n, "nodes_modes"),
      .nodes_splits = tensor_or_none(t, n, "nodes_splits"),
      .membership_values = tensor_or_none(t, n, "membership_values"),
      .leaf_weights = tensor_or_none(t, n, "leaf_weights"),
      .nodes_featureids = n.attr_ints("nodes_featureids"),
      .nodes_truenodeids = n.attr_ints("nodes_truenodeids"),
      .nodes_trueleafs = n.attr_ints("nodes_trueleafs"),
      .nodes_falsenodeids = n.attr_ints("nodes_falsenodeids"),
      .nodes_falseleafs = n.attr_ints("nodes_falseleafs"),
      .nodes_missing_value_tracks_true = ints_or_none(n, "nodes_missing_value_tracks_true"),
      .tree_roots = n.attr_ints("tree_roots"),
      .leaf_targetids = n.attr_ints("leaf_targetids"),
      .n_targets = n.attr_int("n_targets"),
      .aggregate_function = named(n, "aggregate_function", {"AVERAGE", "SUM", "MIN", "MAX"}),
  };
  const ElementType type = computed_type(n);
  const std::string how = named(n, "post_transform", {"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"});
  const Value y = post_transform(t, n, votes(t, n, attributes, type), how);
  return {cast(t, y.as(type), n.element(0))};
}

// --- TreeEnsembleRegressor, TreeEnsembleClassifier ---

// Gives double where the features or some attribute are.
ElementType type_of_list(const NodeView& n) {
  for (const char* name :
       {"nodes_values_as_tensor", "target_weights_as_tensor", "class_weights_as_tensor", "base_values_as_tensor"}) {
    const onnx::AttributeProto* attribute = n.attribute(name);
    if (attribute && attribute->t().data_type() == onnx::TensorProto::DOUBLE) return ElementType::Double;
  }
  return computed_type(n);
}

// Gives the attributes of the nodes and of the `votes`, "target" or "class".
NodeListAttributes node_list(Translator& t, const NodeView& n, const std::string& votes) {
  return {
      .nodes_treeids = n.attr_ints("nodes_treeids"),
      .nodes_nodeids = n.attr_ints("nodes_nodeids"),
      .nodes_featureids = n.attr_ints("nodes_featureids"),
      .nodes_truenodeids = n.attr_ints("nodes_truenodeids"),
      .nodes_falsenodeids = n.attr_ints("nodes_falsenodeids"),
      .nodes_missing_value_tracks_true = ints_or_none(n, "nodes_missing_value_tracks_true"),
      .target_treeids = n.attr_ints(votes + "_treeids"),
      .target_nodeids = n.attr_ints(votes + "_nodeids"),
      .target_ids = n.attr_ints(votes + "_ids"),
      .nodes_modes = n.attr_strings("nodes_modes"),
      .nodes_values = floats_or_none(t, n, "nodes_values"),
      .target_weights = floats_or_none(t, n, votes + "_weights"),
      .base_values = floats_or_none(t, n, "base_values"),
      .n_targets = 1,
      .aggregate_function = "SUM",
  };
}

Values tree_ensemble_regressor(Translator& t, const NodeView& n) {
  NodeListAttributes attributes = node_list(t, n, "target");
  attributes.n_targets = n.attr_int("n_targets");
  attributes.aggregate_function = n.attr_string("aggregate_function");
  const ElementType type = type_of_list(n);
  const Value y = post_transform(t, n, votes(t, n, attributes, type), n.attr_string("post_transform"));
  return {cast(t, y.as(type), ElementType::Float)};
}

bool are_equal(const std::vector<int64_t>& ids) {
  return std::ranges::adjacent_find(ids, std::not_equal_to()) == ids.end();
}

// Translates a classifier with two labels but votes for one class only. The other's score follows from that class's,
// which becomes target 0.
Values binary_classifier(Translator& t, const NodeView& n, NodeListAttributes attributes, const Stored& labels) {
  Tensor& base = attributes.base_values;
  if (base.defined() && base.numel() > 1)
    base = base.slice(0, attributes.target_ids.at(0), attributes.target_ids.at(0) + 1);
  std::ranges::fill(attributes.target_ids, 0);
  const std::string how = n.attr_string("post_transform");
  const bool is_probability = attributes.target_weights.ge(0).all().item<bool>() && (how == "NONE" || how == "PROBIT");
  const ElementType type = type_of_list(n);
  const Value scores = t.call("scores_by_one", {votes(t, n, attributes, type), is_probability});
  return classified(t, n, scores, scores, stored_constant(t, labels), type);
}

// Translates a classifier with one label, as scikit-learn and onnxruntime have it: one column, which no transform
// changes but PROBIT. Where the score is not above 0, the label is 0, or "", which is stored as 0 too.
Values one_class(Translator& t, const NodeView& n, const NodeListAttributes& attributes, const Stored& label) {
  const ElementType type = type_of_list(n);
  const Value scores = votes(t, n, attributes, type);
  const Value is_of_class = t.call("aten::gt", {t.call("aten::select", {scores, 1, 0}), 0});
  const Value labels = t.call("aten::where", {is_of_class, stored_constant(t, label), 0}).as(label.type);
  const std::string how = n.attr_string("post_transform");
  const Value y = post_transform(t, n, scores, how == "PROBIT" ? how : "NONE");
  return {labels, cast(t, y.as(type), ElementType::Float)};
}

Values tree_ensemble_classifier(Translator& t, const NodeView& n) {
  const Stored classlabels = first_listed(t, n, {"classlabels_strings", "classlabels_int64s"});
  const int64_t classes = classlabels.tensor.numel();
  NodeListAttributes attributes = node_list(t, n, "class");
  if (classes == 1) return one_class(t, n, attributes, classlabels);
  if (classes == 2 && are_equal(attributes.target_ids)) return binary_classifier(t, n, attributes, classlabels);

  attributes.n_targets = classes;
  const ElementType type = type_of_list(n);
  const Value scores = votes(t, n, attributes, type);
  return classified(t, n, scores, scores, stored_constant(t, classlabels), type);
}

}  // namespace

void register_ml_tree_ops(Registry& r) {
  r.op(kMl, "TreeEnsemble").since(5, tree_ensemble);
  // Since 3 the floats may be given as tensors, in double precision: nodes_values_as_tensor and the like.
  r.op(kMl, "TreeEnsembleRegressor").since(1, tree_ensemble_regressor).reviewed_to(5);
  r.op(kMl, "TreeEnsembleClassifier").since(1, tree_ensemble_classifier).reviewed_to(5);
}

}  // namespace onnxtorch
