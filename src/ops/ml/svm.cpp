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

// Gives scores of `type`; the coefficients are [scores, vectors].
Value support_vector_scores(Translator& t, const NodeView& n, const Tensor& coefficients, ElementType type) {
  std::vector<double> params(3);
  if (n.has_attribute("kernel_params")) params = n.attr_floats("kernel_params");
  if (params.size() != 3) n.fail("kernel_params are gamma, coef0 and degree");
  const Tensor vectors = listed(t, n, "support_vectors").tensor;
  const Tensor rho = listed(t, n, "rho", ElementType::Double).tensor;
  const int64_t count = coefficients.size(1);
  if (count == 0 || vectors.numel() % count != 0) {
    n.fail("support_vectors are " + std::to_string(vectors.numel()) + " numbers for " + std::to_string(count) +
           " vectors");
  }
  if (rho.numel() != coefficients.size(0)) {
    n.fail("rho has " + std::to_string(rho.numel()) + " numbers for " + std::to_string(coefficients.size(0)) +
           " scores");
  }
  const Value x = t.call("rows_of", {features(t, n)});
  const Value by_feature = t.constant(vectors.reshape({count, -1}).t().contiguous(), ElementType::Float);
  const Value weights = t.constant(coefficients, ElementType::Float), offsets = t.constant(rho, ElementType::Double);
  const auto dtype = static_cast<int64_t>(storage_dtype(type));
  const std::string kernel = n.attr_string("kernel_type");
  if (kernel != "LINEAR" && kernel != "POLY" && kernel != "RBF" && kernel != "SIGMOID") {
    n.fail("kernel_type is LINEAR, POLY, RBF or SIGMOID, not " + kernel);
  }
  if (kernel == "LINEAR") return t.call("scores_of_linear_kernel", {x, by_feature, weights, offsets, dtype});
  return t.call("support_vector_scores", {x, by_feature, weights, offsets, kernel, params, dtype});
}

// Gives the scores without support vectors: the coefficients are those of the features; rho is one number for all
// scores.
Value scores_without_vectors(Translator& t, const NodeView& n) {
  const ElementType type = computed_type(n);
  return t.call("scores_without_vectors", {features(t, n), stored_constant(t, listed(t, n, "coefficients")),
                                           stored_constant(t, listed(t, n, "rho", ElementType::Double)),
                                           static_cast<int64_t>(storage_dtype(type))});
}

Values svm_regressor(Translator& t, const NodeView& n) {
  const ElementType type = computed_type(n);
  const Tensor coefficients = listed(t, n, "coefficients").tensor;
  Value y = n.attr_int("n_supports") > 0 ? support_vector_scores(t, n, coefficients.reshape({1, -1}), type)
                                         : scores_without_vectors(t, n);
  if (n.attr_int("one_class") != 0) y = t.call("one_class", {y});
  y = post_transform(t, n, y, n.attr_string("post_transform"));
  return {cast(t, y.as(type), ElementType::Float)};
}

// All pairs of two classes, the first before the second.
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

// Gives what each support vector counts for a pair [pairs, V]. The coefficients [classes - 1, V] hold for each vector
// those of its own class against the others, in their order.
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

// Gives the votes of each class [N, classes]: one that a pair's score gives to its first class, it takes from the
// second.
Value votes_of_pairs(Translator& t, const Value& scores, const Pairs& pairs, int64_t classes) {
  const Tensor votes = at::zeros({classes, std::ssize(pairs.first)}), votes_of_zero = at::zeros(classes);
  auto of_pair = votes.accessor<float, 2>();
  auto of_zero = votes_of_zero.accessor<float, 1>();
  for (int64_t pair = 0; pair < std::ssize(pairs.first); ++pair) {
    of_pair[pairs.first[pair]][pair] = 1;
    of_pair[pairs.second[pair]][pair] = -1;
    ++of_zero[pairs.second[pair]];
  }
  return t.call("votes_of_pairs",
                {scores, t.constant(votes, ElementType::Float), t.constant(votes_of_zero, ElementType::Float)});
}

Value probabilities_of_pairs(Translator& t, const NodeView& n, const Value& scores, const Pairs& pairs,
                             int64_t classes) {
  return t.call("probabilities_of_pairs", {scores, stored_constant(t, listed(t, n, "prob_a", ElementType::Double)),
                                           stored_constant(t, listed(t, n, "prob_b", ElementType::Double)),
                                           t.constant(at::tensor(pairs.first), ElementType::Int64),
                                           t.constant(at::tensor(pairs.second), ElementType::Int64), classes});
}

Values svm_classifier(Translator& t, const NodeView& n) {
  const Value labels = stored_constant(t, first_listed(t, n, {"classlabels_strings", "classlabels_ints"}));
  const auto per_class =
      n.has_attribute("vectors_per_class") ? n.attr_ints("vectors_per_class") : std::vector<int64_t>{};
  const int64_t vectors = std::accumulate(per_class.begin(), per_class.end(), int64_t{0});
  const bool has_probabilities = vectors > 0 && n.has_attribute("prob_a");
  const ElementType type = has_probabilities ? ElementType::Double : computed_type(n);

  Value scores, ranking;
  if (vectors == 0) {
    scores = ranking = scores_without_vectors(t, n);
  } else {
    const auto classes = static_cast<int64_t>(per_class.size());
    if (classes < 2) n.fail("vectors_per_class must be of two classes or more");
    const Pairs pairs = pairs_of(classes);
    const Tensor coefficients = listed(t, n, "coefficients").tensor;
    scores =
        support_vector_scores(t, n, coefficients_of_pairs(coefficients.reshape({-1, vectors}), per_class, pairs), type);
    ranking = votes_of_pairs(t, scores, pairs, classes);
    if (has_probabilities) scores = probabilities_of_pairs(t, n, scores, pairs, classes);
  }
  return classified(t, n, scores_of_classes(t, scores, labels), ranking, labels, type);
}

}  // namespace

void register_ml_svm_ops(Registry& r) {
  r.op(kMl, "SVMClassifier").since(1, svm_classifier);
  r.op(kMl, "SVMRegressor").since(1, svm_regressor);
}

}  // namespace onnxtorch
