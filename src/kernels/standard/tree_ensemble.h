// Ensembles of decision trees: TreeEnsemble, TreeEnsembleRegressor, TreeEnsembleClassifier. One is made once from a
// node's attributes and scores rows of features.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/planned_call.h"
#include "kernels/standard/trees.h"

namespace onnxtorch {

// The comparison of a node; numbered as TreeEnsemble-5 does, which has no leaves among its nodes.
enum class TreeTest : uint8_t { LessEqual, Less, GreaterEqual, Greater, Equal, NotEqual, Member, Leaf };

// Trees in the form that both families of attributes are brought to. Floating-point tensors are all float, or all
// double; that is also the type in which features are compared and weights added up.
struct TreeTables {
  at::Tensor tests;            // uint8 [nodes]: TreeTest
  at::Tensor features;         // int64 [nodes]
  at::Tensor splits;           // [nodes]
  at::Tensor children;         // int64 [nodes, 2]: the node to go to where the test fails, and where it holds
  at::Tensor missing_is_true;  // bool [nodes]: whether the test holds for NaN
  at::Tensor members;          // [any]: the sets of the Member nodes, in their order, a NaN after each
  at::Tensor roots;            // int64 [trees]: nodes
  at::Tensor votes;            // int64 [votes, 2]: a leaf, and the target that it votes for
  at::Tensor weights;          // [votes]
  at::Tensor base_values;      // [targets], or empty for zero
  int64_t targets;
  std::string aggregate;  // SUM, AVERAGE, MIN or MAX
};

// The attributes of TreeEnsemble, named as there; those that a node leaves out are empty or undefined.
struct TreeEnsembleAttributes {
  at::Tensor nodes_modes, nodes_splits, membership_values, leaf_weights;
  std::vector<int64_t> nodes_featureids, nodes_truenodeids, nodes_trueleafs, nodes_falsenodeids, nodes_falseleafs;
  std::vector<int64_t> nodes_missing_value_tracks_true, tree_roots, leaf_targetids;
  int64_t n_targets;
  std::string aggregate_function;
};

// The attributes of TreeEnsembleRegressor and TreeEnsembleClassifier; `target` also stands for `class`.
struct NodeListAttributes {
  std::vector<int64_t> nodes_treeids, nodes_nodeids, nodes_featureids, nodes_truenodeids, nodes_falsenodeids;
  std::vector<int64_t> nodes_missing_value_tracks_true, target_treeids, target_nodeids, target_ids;
  std::vector<std::string> nodes_modes;
  at::Tensor nodes_values, target_weights, base_values;
  int64_t n_targets;
  std::string aggregate_function;
};

// Bring the attributes to this form. `dtype`, float or double, is the type that features are compared in.
TreeTables tree_tables(const TreeEnsembleAttributes& attributes, at::ScalarType dtype);
TreeTables tree_tables(const NodeListAttributes& attributes, at::ScalarType dtype);

class Forest;

// A forest for a kernel of another device: the arrays of src/kernels/standard/trees.h as bytes.
struct ForestTensors {
  at::Tensor nodes, comparisons, trees;
  at::Tensor members, first_member;  // MemberSets
  at::Tensor votes, first_vote;      // with several targets: in the order of leaves, those of a leaf in that of targets
  at::Tensor base_values;
  Comparison comparison;  // of all nodes, where they have one, and no sets
  Aggregate aggregate;
  bool average;
  int64_t features;  // that the trees look at

  void check_features(const at::Tensor& rows) const;
};

class TreeEnsemble : public torch::CustomClassHolder {
 public:
  explicit TreeEnsemble(TreeTables tables);
  ~TreeEnsemble() override;
  const TreeTables& tables() const { return tables_; }

  // Turns [N, F] features, or [F] for N = 1, into the aggregated votes [N, targets] plus base_values, in the tables'
  // type.
  at::Tensor operator()(const at::Tensor& x) const;
  // Plans the same by memory, as long as this lives; none where x is of another type, or memory does not do.
  std::unique_ptr<PlannedCall> planned(const at::Tensor& x) const;

  at::Tensor rows(const at::Tensor& x) const;         // the features as a contiguous matrix [N, F] in the tables' type
  const ForestTensors& on(c10::Device device) const;  // copied there once

 private:
  TreeTables tables_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<c10::Device, std::unique_ptr<ForestTensors>> copies_;
  std::unique_ptr<const Forest> forest_;
};

}  // namespace onnxtorch
