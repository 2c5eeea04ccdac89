// What the operators of ai.onnx.ml share.
#pragma once

#include "registry/registry.h"

namespace onnxtorch {

inline constexpr const char* kMl = "ai.onnx.ml";

void register_ml_feature_ops(Registry& r);
void register_ml_label_ops(Registry& r);
void register_ml_map_ops(Registry& r);
void register_ml_linear_ops(Registry& r);
void register_ml_svm_ops(Registry& r);
void register_ml_tree_ops(Registry& r);

// An attribute of INTS, FLOATS, STRINGS or a TENSOR, as a tensor; absent where the node does not give it. `type` is that
// of floats.
Value listed(Translator& t, const NodeView& n, std::string_view name, ElementType type = ElementType::Float);
// The first of several attributes that is given.
Value first_listed(Translator& t, const NodeView& n, const std::vector<std::string>& names);

// The type in which input 0 is computed with: float, or double for what a float is too narrow for.
ElementType computed_type(const NodeView& n);
// Input 0 in this type.
Value features(Translator& t, const NodeView& n);

}  // namespace onnxtorch
