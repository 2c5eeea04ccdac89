// The functions that the operators of ai.onnx.ml share.
#pragma once

#include <ATen/core/Tensor.h>

#include "translate/registry.h"

namespace onnxtorch {

inline constexpr const char* kMl = "ai.onnx.ml";

void register_ml_feature_ops(Registry& r);
void register_ml_label_ops(Registry& r);
void register_ml_map_ops(Registry& r);
void register_ml_linear_ops(Registry& r);
void register_ml_svm_ops(Registry& r);
void register_ml_tree_ops(Registry& r);

// A tensor in storage form, with its type.
struct Stored {
  at::Tensor tensor;
  ElementType type;
};

inline Value stored_constant(Translator& t, const Stored& stored) { return t.constant(stored.tensor, stored.type); }

// Gives what an attribute of INTS, FLOATS, STRINGS or a TENSOR lists. `type` is that of floats.
Stored listed(Translator& t, const NodeView& n, std::string_view name, ElementType type = ElementType::Float);
// Gives what the first of several attributes that is given lists.
Stored first_listed(Translator& t, const NodeView& n, const std::vector<std::string>& names);
// Gives the same in the graph; absent where the node does not give the attribute.
Value list_constant(Translator& t, const NodeView& n, std::string_view name, ElementType type = ElementType::Float);

// Gives the type that input 0 is computed in: float, or double for what a float is too narrow for.
ElementType computed_type(const NodeView& n);
// Gives input 0 in this type.
Value features(Translator& t, const NodeView& n);

// Gives the scores [N, C] as `how` has them given: NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT.
Value post_transform(Translator& t, const NodeView& n, const Value& scores, const std::string& how);
// Gives the scores of both classes where there are two: what one scores, the other does with the opposite sign.
Value scores_of_classes(Translator& t, const Value& scores, const Value& labels);
// Gives a classifier's outputs: for each row the label that ranks highest, and the scores, which are of `type`.
Values classified(Translator& t, const NodeView& n, const Value& scores, const Value& ranking, const Value& labels,
                  ElementType type);

}  // namespace onnxtorch
