// LinearClassifier, LinearRegressor.
#include "ops/cast.h"
#include "ops/ml/ml.h"

namespace onnxtorch {
namespace {

// Gives the coefficients in rows, where the intercepts tell how many there are. A single one may be that of all.
Stored coefficients(Translator& t, const NodeView& n, ElementType type) {
  Stored result = listed(t, n, "coefficients", type);
  const int64_t rows = n.has_attribute("intercepts") ? std::ssize(n.attr_floats("intercepts")) : 0;
  if (rows > 1 && result.tensor.numel() % rows == 0) result.tensor = result.tensor.reshape({rows, -1});
  return result;
}

Value linear_scores(Translator& t, const NodeView& n) {
  const ElementType type = computed_type(n);
  const Value rows = stored_constant(t, coefficients(t, n, type));
  return t.call("linear_scores", {features(t, n), rows, list_constant(t, n, "intercepts", type)}).as(type);
}

Values linear_classifier(Translator& t, const NodeView& n) {
  const Value labels = stored_constant(t, first_listed(t, n, {"classlabels_strings", "classlabels_ints"}));
  const Value scores = scores_of_classes(t, linear_scores(t, n), labels);
  return classified(t, n, scores, scores, labels, computed_type(n));
}

Values linear_regressor(Translator& t, const NodeView& n) {
  const Value y = post_transform(t, n, linear_scores(t, n), n.attr_string("post_transform"));
  return {cast(t, y.as(computed_type(n)), ElementType::Float)};
}

}  // namespace

void register_ml_linear_ops(Registry& r) {
  r.op(kMl, "LinearClassifier").since(1, linear_classifier);
  r.op(kMl, "LinearRegressor").since(1, linear_regressor);
}

}  // namespace onnxtorch
