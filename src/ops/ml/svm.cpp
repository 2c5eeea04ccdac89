// SVMClassifier, SVMRegressor.
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <numeric>

#include "ops/cast.h"
#include "ops/ml/ml.h"

namespace onnxtorch {
namespace {

using at::Tensor;

Value support_vector_scores(Translator& t, const NodeView& n, const Tensor& coefficients) {
  const ElementType type = computed_type(n);
  std::vector<double> params(3);
  if (n.has_attribute("kernel_params")) params = n.attr_floats("kernel_params");
  if (params.size() != 3) n.fail("kernel_params are gamma, coef0 and degree");
  return t.call("support_vector_scores",
                {features(t, n), constant(t, listed(t, n, "support_vectors", type)), t.constant(coefficients, type),
                 constant(t, listed(t, n, "rho", type)), n.attr_string("kernel_type"), params});
}

// Without support vectors the coefficients are those of the features; rho is one number.
Value linear_scores(Translator& t, const NodeView& n) {
  const ElementType type = computed_type(n);
  const Value scores = t.call("linear_scores", {features(t, n), constant(t, listed(t, n, "coefficients", type)), none});
  return t.call("aten::add", {scores, constant(t, listed(t, n, "rho", type))});
}

Values svm_regressor(Translator& t, const NodeView& n) {
  const Tensor coefficients = listed(t, n, "coefficients", computed_type(n)).tensor;
  Value y =
      n.attr_int("n_supports") > 0 ? support_vector_scores(t, n, coefficients.reshape({1, -1})) : linear_scores(t, n);
  if (n.attr_int("one_class") != 0) y = t.call("one_class", {y});
  y = post_transform(t, n, y, n.attr_string("post_transform"));
  return {cast(t, y.as(computed_type(n)), ElementType::Float)};
}

// Each two classes, the first before the second.
struct Pairs {
  std::vector<int64_t> first, second;
};

Pairs pairs_of(int64_t classes) {
  Pairs pairs;
  for (int64_t i = 0; i < classes; ++i) {
    for (int64_t j = i + 1; j < classes; ++j) {
      pairs.first.push_back(i);
      pairs.second.push_back(j);
    }
  }
  return pairs;
}

// What each support vector counts for a pair [pairs, V]. The coefficients [classes - 1, V] hold for each vector those
// of its own class against the others, in their order.
Tensor coefficients_of_pairs(const Tensor& coefficients, const std::vector<int64_t>& vectors_per_class,
                             const Pairs& pairs) {
  const std::vector<Tensor> of_class = coefficients.split_with_sizes(vectors_per_class, 1);
  std::vector<Tensor> rows;
  for (size_t pair = 0; pair < pairs.first.size(); ++pair) {
    const int64_t i = pairs.first[pair], j = pairs.second[pair];
    std::vector<Tensor> parts;
    for (const Tensor& part : of_class) parts.push_back(at::zeros({part.size(1)}, part.options()));
    parts[i] = of_class[i][j - 1];
    parts[j] = of_class[j][i];
    rows.push_back(at::cat(parts));
  }
  return at::stack(rows);
}

Values svm_classifier(Translator& t, const NodeView& n) {
  const ElementType type = computed_type(n);
  const Value labels = constant(t, first_listed(t, n, {"classlabels_strings", "classlabels_ints"}));
  const auto per_class =
      n.has_attribute("vectors_per_class") ? n.attr_ints("vectors_per_class") : std::vector<int64_t>{};
  const int64_t vectors = std::accumulate(per_class.begin(), per_class.end(), int64_t{0});

  Value scores, ranking;
  if (vectors == 0) {
    scores = ranking = linear_scores(t, n);
  } else {
    const auto classes = static_cast<int64_t>(per_class.size());
    if (classes < 2) n.fail("vectors_per_class must be of two classes or more");
    const Pairs pairs = pairs_of(classes);
    const Value first = t.constant(at::tensor(pairs.first), ElementType::Int64);
    const Value second = t.constant(at::tensor(pairs.second), ElementType::Int64);
    const Tensor coefficients = listed(t, n, "coefficients", type).tensor;
    scores = support_vector_scores(t, n, coefficients_of_pairs(coefficients.reshape({-1, vectors}), per_class, pairs));
    ranking = t.call("votes_of_pairs", {scores, first, second, classes});
    if (n.has_attribute("prob_a")) {
      scores = t.call("probabilities_of_pairs", {scores, constant(t, listed(t, n, "prob_a", type)),
                                                 constant(t, listed(t, n, "prob_b", type)), first, second, classes});
    }
  }
  return classified(t, n, scores_of_classes(t, scores, labels), ranking, labels, type);
}

}  // namespace

void register_ml_svm_ops(Registry& r) {
  r.op(kMl, "SVMClassifier").since(1, svm_classifier);
  r.op(kMl, "SVMRegressor").since(1, svm_regressor);
}

}  // namespace onnxtorch
