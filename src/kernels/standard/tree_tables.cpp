// The attributes of the tree operators, brought to one form.
#include <ATen/ATen.h>

#include <map>

#include "kernels/standard/tree_ensemble.h"

namespace onnxtorch {

using at::Tensor;

namespace {

Tensor int64s(const std::vector<int64_t>& values) { return at::tensor(values, at::kLong); }

// Gives the flags of an attribute that says something of each node, or is left out.
Tensor flags(const std::vector<int64_t>& values, int64_t nodes) {
  return values.empty() ? at::zeros(nodes, at::kBool) : int64s(values).to(at::kBool);
}

Tensor floats(const Tensor& values, at::ScalarType dtype) {
  return values.defined() ? values.to(at::kCPU, dtype).contiguous().reshape(-1) : at::empty(0, dtype);
}

TreeTest test_named(const std::string& mode) {
  static const std::map<std::string, TreeTest> tests{
      {"BRANCH_LEQ", TreeTest::LessEqual}, {"BRANCH_LT", TreeTest::Less},  {"BRANCH_GTE", TreeTest::GreaterEqual},
      {"BRANCH_GT", TreeTest::Greater},    {"BRANCH_EQ", TreeTest::Equal}, {"BRANCH_NEQ", TreeTest::NotEqual},
      {"BRANCH_MEMBER", TreeTest::Member}, {"LEAF", TreeTest::Leaf},
  };
  const auto found = tests.find(mode);
  TORCH_CHECK_VALUE(found != tests.end(), "'", mode, "' is not a mode of a tree's node");
  return found->second;
}

}  // namespace

TreeTables tree_tables(const TreeEnsembleAttributes& a, at::ScalarType dtype) {
  const int64_t branches = a.nodes_modes.numel();
  const auto leaves = static_cast<int64_t>(a.leaf_targetids.size());
  const auto per_branch = [&](const std::vector<int64_t>& values) {
    TORCH_CHECK_VALUE(static_cast<int64_t>(values.size()) == branches,
                      "TreeEnsemble: nodes_* attributes differ in length");
    return int64s(values);
  };
  // Leaf i becomes node branches + i.
  const auto child = [&](const std::vector<int64_t>& ids, const std::vector<int64_t>& are_leaves) {
    return per_branch(ids) + per_branch(are_leaves).ne(0) * branches;
  };
  const auto then_leaves = [&](const Tensor& of_branches, const at::Scalar& of_leaves) {
    return at::cat({of_branches, at::full(leaves, of_leaves, of_branches.options())});
  };
  const Tensor leaf_nodes = at::arange(branches, branches + leaves, at::kLong);
  return {
      .tests = then_leaves(a.nodes_modes.to(at::kCPU, at::kByte), static_cast<int64_t>(TreeTest::Leaf)),
      .features = then_leaves(per_branch(a.nodes_featureids), 0),
      .splits = then_leaves(floats(a.nodes_splits, dtype), 0),
      .children = at::cat(
          {at::stack({child(a.nodes_falsenodeids, a.nodes_falseleafs), child(a.nodes_truenodeids, a.nodes_trueleafs)},
                     1),
           at::stack({leaf_nodes, leaf_nodes}, 1)}),
      .missing_is_true = then_leaves(flags(a.nodes_missing_value_tracks_true, branches), false),
      .members = floats(a.membership_values, dtype),
      .roots = int64s(a.tree_roots),
      .votes = at::stack({leaf_nodes, int64s(a.leaf_targetids)}, 1),
      .weights = floats(a.leaf_weights, dtype),
      .base_values = at::empty(0, dtype),
      .targets = a.n_targets,
      .aggregate = a.aggregate_function,
  };
}

TreeTables tree_tables(const NodeListAttributes& a, at::ScalarType dtype) {
  const size_t nodes = a.nodes_nodeids.size();
  TORCH_CHECK_VALUE(a.nodes_treeids.size() == nodes && a.nodes_modes.size() == nodes &&
                        a.nodes_truenodeids.size() == nodes && a.nodes_falsenodeids.size() == nodes,
                    "a tree ensemble's nodes_* attributes differ in length");
  TORCH_CHECK_VALUE(
      a.target_nodeids.size() == a.target_treeids.size() && a.target_ids.size() == a.target_treeids.size(),
      "a tree ensemble's attributes of weights differ in length");

  std::map<std::pair<int64_t, int64_t>, int64_t> index_of;
  std::map<int64_t, int64_t> first_of_tree;
  std::vector<int64_t> roots;
  for (size_t i = 0; i < nodes; ++i) {
    const int64_t tree = a.nodes_treeids[i];
    TORCH_CHECK_VALUE(index_of.try_emplace({tree, a.nodes_nodeids[i]}, i).second, "node ", a.nodes_nodeids[i],
                      " of tree ", tree, " appears twice");
    if (first_of_tree.try_emplace(tree, i).second) roots.push_back(static_cast<int64_t>(i));
  }
  const auto index = [&](int64_t tree, int64_t node) {
    const auto found = index_of.find({tree, node});
    TORCH_CHECK_VALUE(found != index_of.end(), "tree ", tree, " has no node ", node);
    return found->second;
  };

  std::vector<int64_t> tests, children, votes;
  for (size_t i = 0; i < nodes; ++i) {
    const TreeTest test = test_named(a.nodes_modes[i]);
    const bool leaf = test == TreeTest::Leaf;
    const auto self = static_cast<int64_t>(i);
    tests.push_back(static_cast<int64_t>(test));
    children.push_back(leaf ? self : index(a.nodes_treeids[i], a.nodes_falsenodeids[i]));
    children.push_back(leaf ? self : index(a.nodes_treeids[i], a.nodes_truenodeids[i]));
  }
  for (size_t i = 0; i < a.target_ids.size(); ++i) {
    votes.push_back(index(a.target_treeids[i], a.target_nodeids[i]));
    votes.push_back(a.target_ids[i]);
  }
  return {
      .tests = int64s(tests).to(at::kByte),
      .features = int64s(a.nodes_featureids),
      .splits = floats(a.nodes_values, dtype),
      .children = int64s(children).reshape({-1, 2}),
      .missing_is_true = flags(a.nodes_missing_value_tracks_true, static_cast<int64_t>(nodes)),
      .members = at::empty(0, dtype),
      .roots = int64s(roots),
      .votes = int64s(votes).reshape({-1, 2}),
      .weights = floats(a.target_weights, dtype),
      .base_values = floats(a.base_values, dtype),
      .targets = a.n_targets,
      .aggregate = a.aggregate_function,
  };
}

}  // namespace onnxtorch
