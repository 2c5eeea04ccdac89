// The operators that prepare features: ArrayFeatureExtractor, Binarizer, FeatureVectorizer, Imputer, Normalizer,
// Scaler.
#include <cmath>

#include "ops/cast.h"
#include "ops/ml/ml.h"

namespace onnxtorch {
namespace {

// Translates Imputer. The values to impute are one, or one for each feature.
Values imputer(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0);
  const bool floating = is_floating(n.element(0));
  const char* name = floating ? "imputed_value_floats" : "imputed_value_int64s";
  const Value imputed = cast(t, stored_constant(t, listed(t, n, name)), n.element(0));
  const auto is_replaced = [&] {
    if (!floating) return t.call("aten::eq", {x, n.attr_int("replaced_value_int64")});
    const double replaced = n.attr_float("replaced_value_float");
    return std::isnan(replaced) ? t.call("aten::isnan", {x}) : t.call("aten::eq", {x, replaced});
  };
  return {t.call("aten::where", {is_replaced(), imputed, x})};
}

// Divides each row by its size, as `norm` has it. Rows of zeros stay so.
Value normalized(Translator& t, const NodeView& n, const Value& x, const std::string& norm) {
  const std::vector<int64_t> features{-1};
  const auto divided_by = [&](const Value& size) {
    return t.call("aten::div", {x, t.call("aten::where", {t.call("aten::eq", {size, 0}), 1.0, size})});
  };
  if (norm == "MAX") return divided_by(t.call("aten::amax", {x, features, true}));
  if (norm == "L1") return t.call("divided_by_sum_of_magnitudes", {x});
  if (norm == "L2") {
    const Value squares = t.call("aten::sum", {t.call("aten::square", {x}), features, true});
    return divided_by(t.call("aten::sqrt", {squares}));
  }
  n.fail("norm is MAX, L1 or L2, not " + norm);
}

Values normalizer(Translator& t, const NodeView& n) {
  const Value y = normalized(t, n, features(t, n), n.attr_string("norm"));
  return {cast(t, y.as(computed_type(n)), ElementType::Float)};
}

Values scaler(Translator& t, const NodeView& n) {
  const ElementType type = computed_type(n);
  Value y = features(t, n);
  if (n.has_attribute("offset")) y = t.call("aten::sub", {y, list_constant(t, n, "offset", type)});
  if (n.has_attribute("scale")) y = t.call("aten::mul", {y, list_constant(t, n, "scale", type)});
  return {cast(t, y.as(type), ElementType::Float)};
}

}  // namespace

void register_ml_feature_ops(Registry& r) {
  r.op(kMl, "ArrayFeatureExtractor").since(1, script("array_feature_extractor"));
  r.op(kMl, "Binarizer").since(1, script("binarizer"));
  r.op(kMl, "FeatureVectorizer").since(1, script("feature_vectorizer"));
  r.op(kMl, "Imputer").since(1, imputer);
  r.op(kMl, "Normalizer").since(1, normalizer);
  r.op(kMl, "Scaler").since(1, scaler);
}

}  // namespace onnxtorch
