#include "kernels/standard/tree_ensemble.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "base/parallel.h"
#include "kernels/standard/trees.h"

namespace onnxtorch {

using at::Tensor;

class Forest {
 public:
  virtual ~Forest() = default;
  // Gives the scores of a contiguous [N, F] matrix in the forest's type.
  virtual Tensor scores(const Tensor& x) const = 0;
  // Plans the same by memory; none where threads have trees of their own, whose votes are brought together.
  virtual std::unique_ptr<PlannedCall> planned(const Tensor& x) const = 0;
  virtual ForestTensors tensors() const = 0;
};

namespace {

void check_features(int64_t features, const Tensor& rows) {
  TORCH_CHECK_VALUE(rows.size(1) >= features, "a tree ensemble looks at ", features, " features, and is given ",
                    rows.size(1));
}

template <typename T>
std::span<const T> span_of(const Tensor& x) {
  return {x.const_data_ptr<T>(), static_cast<size_t>(x.numel())};
}

constexpr std::array kComparisons{Comparison::LessEqual, Comparison::Less,  Comparison::Less,  Comparison::LessEqual,
                                  Comparison::Equal,     Comparison::Equal, Comparison::Member};
constexpr std::array kIsNegated{false, false, true, true, false, true, false};

// The number of ways down a tree that are gone in parallel, so that the loads of one do not wait for those of another.
constexpr int64_t kLanes = 8;
// The number of rows that one thread takes through tree after tree: few enough to stay in the nearest cache.
constexpr int64_t kBlock = 128;
// The number of steps down trees that are worth a thread, whatever else goes on: the sums depend on how the trees are
// shared out.
constexpr int64_t kLeastSteps = 1 << 13;

template <typename T>
class ForestOf final : public Forest {
 public:
  explicit ForestOf(const TreeTables& tables);
  Tensor scores(const Tensor& x) const override;
  std::unique_ptr<PlannedCall> planned(const Tensor& x) const override;
  ForestTensors tensors() const override;

 private:
  using Node = TreeNode<T>;
  using Vote = TreeVote<T>;
  struct FeatureRows {
    const T* x;
    int64_t count;
    int64_t features;
  };
  // The division of rows and trees among the threads: into blocks of rows and shares of the trees.
  struct Parts {
    int64_t threads, blocks, shares;
  };
  using Lanes = std::array<int32_t, kLanes>;
  using Score = void (ForestOf::*)(FeatureRows, std::span<const Tree>, T*) const;
  struct Layout;

  void read_members(std::span<const T> members);
  Tree add_tree(const TreeTables& tables, int64_t root, Layout& layout);
  void add_branch(const TreeTables& tables, int64_t node, const Layout& layout);
  void add_leaf(std::vector<Vote>& votes);
  void choose_comparison();

  template <Comparison comparison>
  bool branches(T value, int32_t node) const;
  template <Comparison comparison, bool with_missing>
  void descend(Lanes& at, int32_t depth, const T* x, int64_t stride) const;
  template <Aggregate aggregate>
  void add_votes(int32_t leaf, T* scores) const;
  template <Comparison comparison, bool with_missing, Aggregate aggregate>
  void score(FeatureRows rows, std::span<const Tree> trees, T* scores) const;
  template <Aggregate aggregate>
  Score scorer(FeatureRows rows) const;
  Parts parts(int64_t rows) const;
  template <Aggregate aggregate>
  void aggregate_votes(FeatureRows rows, const Parts& parts, T* out) const;
  template <typename F>
  auto with_aggregate(F f) const;

  std::vector<Node> nodes_;  // of each tree together, parents before children, near nodes near
  std::vector<Comparison> comparisons_;
  Comparison comparison_ = Comparison::Various;  // of all branches, where they have one, and no sets
  bool follows_missing_ = false;                 // whether a NaN takes another way than a failed comparison
  std::vector<Tree> trees_;
  int64_t steps_ = 0;       // down all trees, at most
  std::vector<T> members_;  // of all sets
  std::vector<int32_t> first_member_{0};
  std::vector<Vote> votes_;             // with several targets: in the order of leaves
  std::vector<int32_t> first_vote_{0};  // of each node, and the end
  int64_t features_ = 1;                // that the trees look at
  int64_t targets_;
  Aggregate aggregate_;
  bool average_;
  std::vector<T> base_values_;
};

template <typename T>
template <typename F>
auto ForestOf<T>::with_aggregate(F f) const {
  switch (aggregate_) {
    case Aggregate::Sum:
      return f.template operator()<Aggregate::Sum>();
    case Aggregate::Min:
      return f.template operator()<Aggregate::Min>();
    case Aggregate::Max:
      break;
  }
  return f.template operator()<Aggregate::Max>();
}

// ---- Laying the nodes out

// The places where the nodes of the tables go, and what they carry.
template <typename T>
struct ForestOf<T>::Layout {
  struct NodePosition {
    int64_t parents = 0;
    int32_t depth = 0;
    int32_t index = 0;
  };
  std::vector<NodePosition> places;  // of the tree at hand
  std::vector<T> thresholds;
  std::vector<std::vector<Vote>> votes;
};

template <typename T>
ForestOf<T>::ForestOf(const TreeTables& tables) : targets_(tables.targets) {
  const std::string& aggregate = tables.aggregate;
  average_ = aggregate == "AVERAGE";
  TORCH_CHECK_VALUE(average_ || aggregate == "SUM" || aggregate == "MIN" || aggregate == "MAX",
                    "a tree ensemble's aggregate function is SUM, AVERAGE, MIN or MAX, not '", aggregate, "'");
  aggregate_ = aggregate == "MIN" ? Aggregate::Min : aggregate == "MAX" ? Aggregate::Max : Aggregate::Sum;

  TORCH_CHECK_VALUE(0 <= targets_ && targets_ <= std::numeric_limits<int32_t>::max(), "a tree ensemble has ", targets_,
                    " targets");

  const auto base_values = span_of<T>(tables.base_values);
  base_values_.assign(base_values.begin(), base_values.end());

  const auto tests = span_of<uint8_t>(tables.tests);
  const auto splits = span_of<T>(tables.splits);
  Layout layout{.places = std::vector<typename Layout::NodePosition>(tests.size()),
                .thresholds = std::vector<T>(splits.begin(), splits.end()),
                .votes = std::vector<std::vector<Vote>>(tests.size())};

  const auto weights = span_of<T>(tables.weights);
  const auto votes = span_of<int64_t>(tables.votes);
  for (size_t i = 0; i < weights.size(); ++i) {
    const int64_t target = votes[2 * i + 1];
    TORCH_CHECK_VALUE(0 <= target && target < targets_, "a tree votes for target ", target, " of ", targets_);
    layout.votes.at(votes[2 * i]).push_back({static_cast<int32_t>(target), weights[i]});
  }

  read_members(span_of<T>(tables.members));
  size_t set = 0;
  for (size_t i = 0; i < tests.size(); ++i) {
    TORCH_CHECK_VALUE(tests[i] <= static_cast<uint8_t>(TreeTest::Leaf), "a tree's node has the unknown mode ",
                      static_cast<int>(tests[i]));
    if (tests[i] == static_cast<uint8_t>(TreeTest::Member)) layout.thresholds[i] = static_cast<T>(set++);
  }
  TORCH_CHECK_VALUE(set == first_member_.size() - 1, "a tree ensemble has ", first_member_.size() - 1,
                    " sets of members for ", set, " BRANCH_MEMBER nodes");

  for (const int64_t root : span_of<int64_t>(tables.roots)) {
    trees_.push_back(add_tree(tables, root, layout));
    steps_ += trees_.back().depth;
  }
  choose_comparison();
}

template <typename T>
void ForestOf<T>::read_members(std::span<const T> members) {
  for (size_t begin = 0; begin < members.size();) {
    size_t end = begin;
    while (end < members.size() && !std::isnan(members[end])) ++end;
    std::vector<T> set(members.begin() + begin, members.begin() + end);
    std::sort(set.begin(), set.end());
    members_.insert(members_.end(), set.begin(), set.end());
    first_member_.push_back(static_cast<int32_t>(members_.size()));
    begin = end + 1;
  }
}

// Adds a tree, breadth-first. Branches may share a child (those for the values of a category do), but not lead back to
// themselves.
template <typename T>
Tree ForestOf<T>::add_tree(const TreeTables& tables, int64_t root, Layout& layout) {
  const auto tests = span_of<uint8_t>(tables.tests);
  const auto children = span_of<int64_t>(tables.children);
  const auto is_leaf = [&](int64_t node) { return tests[node] == static_cast<uint8_t>(TreeTest::Leaf); };
  const auto children_of = [&](int64_t node) { return children.subspan(2 * node, is_leaf(node) ? 0 : 2); };
  const auto place_of = [&](int64_t node) -> typename Layout::NodePosition& {
    TORCH_CHECK_VALUE(0 <= node && node < std::ssize(tests), "a tree has no node ", node);
    return layout.places[node];
  };

  place_of(root);
  std::vector<int64_t> reached{root};
  for (size_t i = 0; i < reached.size(); ++i) {
    for (const int64_t child : children_of(reached[i])) {
      if (place_of(child).parents++ == 0) reached.push_back(child);
    }
  }
  TORCH_CHECK_VALUE(nodes_.size() + reached.size() <= std::numeric_limits<int32_t>::max(),
                    "a tree ensemble has too many nodes");

  std::vector<int64_t> order;
  if (place_of(root).parents == 0) order.push_back(root);
  for (size_t i = 0; i < order.size(); ++i) {
    auto& place = place_of(order[i]);
    place.index = static_cast<int32_t>(nodes_.size() + i);
    for (const int64_t child : children_of(order[i])) {
      auto& below = place_of(child);
      below.depth = std::max(below.depth, place.depth + 1);
      if (--below.parents == 0) order.push_back(child);
    }
  }
  TORCH_CHECK_VALUE(order.size() == reached.size(), "a tree's nodes lead round in a circle");

  const Tree tree{place_of(root).index, place_of(order.back()).depth};
  for (const int64_t node : order) is_leaf(node) ? add_leaf(layout.votes[node]) : add_branch(tables, node, layout);
  for (const int64_t node : order) place_of(node) = {};
  return tree;
}

template <typename T>
void ForestOf<T>::add_branch(const TreeTables& tables, int64_t node, const Layout& layout) {
  const auto test = span_of<uint8_t>(tables.tests)[node];
  const int64_t feature = span_of<int64_t>(tables.features)[node];
  const int64_t* const children = tables.children.const_data_ptr<int64_t>() + 2 * node;
  TORCH_CHECK_VALUE(0 <= feature && feature < std::numeric_limits<int32_t>::max(), "a tree looks at feature ", feature);
  features_ = std::max(features_, feature + 1);

  const bool negated = kIsNegated[test];
  const int32_t if_false = layout.places[children[0]].index;
  const int32_t if_true = layout.places[children[1]].index;
  const bool missing_child = span_of<bool>(tables.missing_is_true)[node] != negated;
  follows_missing_ |= missing_child;
  nodes_.push_back({layout.thresholds[node], static_cast<uint32_t>(feature), missing_child,
                    negated ? std::array{if_true, if_false} : std::array{if_false, if_true}});
  comparisons_.push_back(kComparisons[test]);
  first_vote_.push_back(static_cast<int32_t>(votes_.size()));
}

template <typename T>
void ForestOf<T>::add_leaf(std::vector<Vote>& votes) {
  const T vote = with_aggregate([&]<Aggregate aggregate> {
    T value = kNoVote<aggregate, T>;
    for (const Vote& v : votes) value = aggregated<aggregate>(value, v.weight);
    return value;
  });
  const auto self = static_cast<int32_t>(nodes_.size());
  nodes_.push_back({vote, 0, 0, {self, self}});
  comparisons_.push_back(Comparison::LessEqual);  // of no consequence
  std::ranges::stable_sort(votes, {}, &Vote::target);
  if (targets_ > 1) votes_.insert(votes_.end(), votes.begin(), votes.end());
  first_vote_.push_back(static_cast<int32_t>(votes_.size()));
}

template <typename T>
void ForestOf<T>::choose_comparison() {
  std::array<bool, 4> used{};
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].children[0] != static_cast<int32_t>(i)) used[static_cast<size_t>(comparisons_[i])] = true;
  }
  // Leaves, too, are compared with where all nodes are alike, and what a leaf has is not the index of a set.
  const bool has_sets = used[static_cast<size_t>(Comparison::Member)];
  if (!has_sets && std::count(used.begin(), used.end(), true) <= 1) {
    comparison_ = static_cast<Comparison>(std::find(used.begin(), used.end(), true) - used.begin());
  }
}

// ---- Going down

template <typename T>
template <Comparison comparison>
bool ForestOf<T>::branches(T value, int32_t node) const {
  const T threshold = nodes_[node].threshold;
  const MemberSets<T> sets{members_.data(), first_member_.data()};
  if constexpr (comparison == Comparison::Various) {
    return holds(comparisons_[node], value, threshold, sets);
  } else {
    return holds<comparison>(value, threshold, sets);
  }
}

// Goes down from the nodes `at`, lane i by the row at x + i * stride.
template <typename T>
template <Comparison comparison, bool with_missing>
void ForestOf<T>::descend(Lanes& at, int32_t depth, const T* x, int64_t stride) const {
  int32_t moved = 1;
  for (int32_t level = 0; level < depth && moved != 0; ++level) {
    moved = 0;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const Node& node = nodes_[at[lane]];
      const T value = x[lane * stride + node.feature];
      bool side = branches<comparison>(value, at[lane]);
      if constexpr (with_missing) side = std::isnan(value) ? node.missing_child : side;
      const int32_t next = node.children[side];
      moved |= next ^ at[lane];
      at[lane] = next;
    }
  }
}

// ---- Adding up

template <typename T>
template <Aggregate aggregate>
void ForestOf<T>::add_votes(int32_t leaf, T* scores) const {
  if (targets_ == 1) {
    *scores = aggregated<aggregate>(*scores, nodes_[leaf].threshold);
    return;
  }
  for (int32_t i = first_vote_[leaf]; i < first_vote_[leaf + 1]; ++i) {
    T& score = scores[votes_[i].target];
    score = aggregated<aggregate>(score, votes_[i].weight);
  }
}

// Adds the trees' votes to the scores. Several rows go down one tree in parallel; each row that is left over goes down
// several trees.
template <typename T>
template <Comparison comparison, bool with_missing, Aggregate aggregate>
void ForestOf<T>::score(FeatureRows rows, std::span<const Tree> trees, T* scores) const {
  Lanes at;
  const int64_t even = rows.count / kLanes * kLanes;
  for (const Tree& tree : trees) {
    for (int64_t row = 0; row < even; row += kLanes) {
      at.fill(tree.root);
      descend<comparison, with_missing>(at, tree.depth, rows.x + row * rows.features, rows.features);
      for (int64_t lane = 0; lane < kLanes; ++lane) add_votes<aggregate>(at[lane], scores + (row + lane) * targets_);
    }
  }
  for (int64_t row = even; row < rows.count; ++row) {
    for (auto rest = trees; !rest.empty();) {
      const auto side_by_side = rest.first(std::min<size_t>(kLanes, rest.size()));
      int32_t depth = 0;
      at.fill(side_by_side.front().root);
      for (size_t lane = 0; lane < side_by_side.size(); ++lane) {
        at[lane] = side_by_side[lane].root;
        depth = std::max(depth, side_by_side[lane].depth);
      }
      descend<comparison, with_missing>(at, depth, rows.x + row * rows.features, 0);
      for (size_t lane = 0; lane < side_by_side.size(); ++lane) add_votes<aggregate>(at[lane], scores + row * targets_);
      rest = rest.subspan(side_by_side.size());
    }
  }
}

template <typename T>
template <Aggregate aggregate>
ForestOf<T>::Score ForestOf<T>::scorer(FeatureRows rows) const {
  const bool with_missing = follows_missing_ && std::any_of(rows.x, rows.x + rows.count * rows.features,
                                                            [](T value) { return std::isnan(value); });
  const auto choose = [&]<Comparison comparison>() -> Score {
    return with_missing ? &ForestOf::score<comparison, true, aggregate>
                        : &ForestOf::score<comparison, false, aggregate>;
  };
  switch (comparison_) {
    case Comparison::LessEqual:
      return choose.template operator()<Comparison::LessEqual>();
    case Comparison::Less:
      return choose.template operator()<Comparison::Less>();
    default:
      return choose.template operator()<Comparison::Various>();
  }
}

// Divides the work. Where blocks of rows are too few, trees are shared out as well.
template <typename T>
ForestOf<T>::Parts ForestOf<T>::parts(int64_t rows) const {
  const auto trees = static_cast<int64_t>(trees_.size());
  const int64_t blocks = (rows + kBlock - 1) / kBlock;
  const int64_t threads = std::clamp<int64_t>(rows * steps_ / kLeastSteps, 1, at::get_num_threads());
  return {threads, blocks, blocks == 0 ? 1 : std::clamp<int64_t>(threads / blocks, 1, std::max<int64_t>(trees, 1))};
}

// Gives the votes of all trees into the first rows of `out`, which has as many for each share.
template <typename T>
template <Aggregate aggregate>
void ForestOf<T>::aggregate_votes(FeatureRows of, const Parts& parts, T* out) const {
  const auto [in, rows, features] = of;
  const auto [threads, blocks, shares] = parts;
  const auto trees = static_cast<int64_t>(trees_.size());
  std::fill_n(out, shares * rows * targets_, kNoVote<aggregate, T>);
  const int64_t tasks = blocks * shares;
  const auto visit = [&, in = in, rows = rows, features = features, blocks = blocks, shares = shares](int64_t task,
                                                                                                      int64_t) {
    const int64_t share = task / blocks;
    const int64_t first_row = task % blocks * kBlock;
    const int64_t first_tree = share * trees / shares;
    const int64_t end_tree = (share + 1) * trees / shares;
    const FeatureRows block{in + first_row * features, std::min(kBlock, rows - first_row), features};
    (this->*scorer<aggregate>(block))(block, std::span(trees_).subspan(first_tree, end_tree - first_tree),
                                      out + (share * rows + first_row) * targets_);
  };
  if (tasks == 1) {
    visit(0, 0);
  } else {
    share_out(tasks, std::min(threads, tasks), visit);
  }

  for (int64_t i = 0; i < rows * targets_; ++i) {
    for (int64_t share = 1; share < shares; ++share) {
      out[i] = aggregated<aggregate>(out[i], out[share * rows * targets_ + i]);
    }
    const T* const base_value = base_values_.empty() ? nullptr : &base_values_[i % targets_];
    out[i] = finished_score<aggregate>(out[i], average_, trees, base_value);
  }
}

template <typename T>
Tensor ForestOf<T>::scores(const Tensor& x) const {
  check_features(features_, x);
  const Parts shared = parts(x.size(0));
  Tensor votes = at::empty({shared.shares, x.size(0), targets_}, x.options());
  const FeatureRows rows{x.const_data_ptr<T>(), x.size(0), x.size(1)};
  with_aggregate([&]<Aggregate aggregate> { aggregate_votes<aggregate>(rows, shared, votes.mutable_data_ptr<T>()); });
  return votes.select(0, 0);
}

template <typename T>
std::unique_ptr<PlannedCall> ForestOf<T>::planned(const Tensor& x) const {
  const Parts shared = parts(x.size(0));
  if (shared.shares > 1 || x.size(1) < features_) return {};
  return onnxtorch::planned(
      [this, shared, count = x.size(0), features = x.size(1)](std::span<const TensorPlace> places) {
        const FeatureRows rows{places[0].as<T>(), count, features};
        with_aggregate([&]<Aggregate aggregate> { aggregate_votes<aggregate>(rows, shared, places[1].as<T>()); });
      });
}

// Gives a copy of a vector's elements, as bytes.
template <typename Element>
Tensor bytes_of(const std::vector<Element>& elements) {
  Tensor bytes = at::empty(static_cast<int64_t>(elements.size() * sizeof(Element)), at::kByte);
  if (!elements.empty()) std::memcpy(bytes.mutable_data_ptr(), elements.data(), bytes.numel());
  return bytes;
}

template <typename T>
ForestTensors ForestOf<T>::tensors() const {
  return {
      .nodes = bytes_of(nodes_),
      .comparisons = bytes_of(comparisons_),
      .trees = bytes_of(trees_),
      .members = bytes_of(members_),
      .first_member = bytes_of(first_member_),
      .votes = bytes_of(votes_),
      .first_vote = bytes_of(first_vote_),
      .base_values = bytes_of(base_values_),
      .comparison = comparison_,
      .aggregate = aggregate_,
      .average = average_,
      .features = features_,
  };
}

void check_sizes(const TreeTables& t) {
  const int64_t nodes = t.tests.numel();
  TORCH_CHECK_VALUE(t.features.numel() == nodes && t.splits.numel() == nodes && t.children.numel() == 2 * nodes &&
                        t.missing_is_true.numel() == nodes,
                    "a tree ensemble's nodes_* attributes differ in length");
  TORCH_CHECK_VALUE(t.votes.numel() == 2 * t.weights.numel(), "a tree ensemble has ", t.weights.numel(),
                    " weights for ", t.votes.numel() / 2, " votes");
  TORCH_CHECK_VALUE(t.base_values.numel() == 0 || t.base_values.numel() == t.targets, "a tree ensemble has ",
                    t.base_values.numel(), " base_values for ", t.targets, " targets");
}

}  // namespace

TreeEnsemble::TreeEnsemble(TreeTables tables) : tables_(std::move(tables)) {
  check_sizes(tables_);
  if (tables_.splits.scalar_type() == at::kFloat) {
    forest_ = std::make_unique<ForestOf<float>>(tables_);
  } else {
    forest_ = std::make_unique<ForestOf<double>>(tables_);
  }
}

TreeEnsemble::~TreeEnsemble() = default;

Tensor TreeEnsemble::rows(const Tensor& x) const {
  TORCH_CHECK_VALUE(x.dim() == 1 || x.dim() == 2, "a tree ensemble takes a tensor of shape [N, F], not ", x.sizes());
  return (x.dim() == 1 ? x.unsqueeze(0) : x).to(tables_.splits.scalar_type()).contiguous();
}

Tensor TreeEnsemble::operator()(const Tensor& x) const { return forest_->scores(rows(x.cpu())).to(x.device()); }

std::unique_ptr<PlannedCall> TreeEnsemble::planned(const Tensor& x) const {
  const bool fits = x.is_cpu() && x.dim() == 2 && x.numel() > 0 && x.is_contiguous() &&
                    x.scalar_type() == tables_.splits.scalar_type();
  return fits ? forest_->planned(x) : nullptr;
}

void ForestTensors::check_features(const Tensor& rows) const { onnxtorch::check_features(features, rows); }

const ForestTensors& TreeEnsemble::on(c10::Device device) const {
  const std::lock_guard lock(mutex_);
  auto& copy = copies_[device];
  if (!copy) {
    copy = std::make_unique<ForestTensors>(forest_->tensors());
    for (Tensor ForestTensors::* part : {&ForestTensors::nodes, &ForestTensors::comparisons, &ForestTensors::trees,
                                         &ForestTensors::members, &ForestTensors::first_member, &ForestTensors::votes,
                                         &ForestTensors::first_vote, &ForestTensors::base_values}) {
      (*copy).*part = ((*copy).*part).to(device);
    }
  }
  return *copy;
}

// ---- Registration -------------------------------------------------------------------------------------------------

namespace {

using Ensemble = c10::intrusive_ptr<TreeEnsemble>;
using Tensors = std::vector<Tensor>;
using Ints = std::vector<int64_t>;

// A state: the tensors of TreeTables in their order; targets; aggregate
using State = std::tuple<Tensors, int64_t, std::string>;

constexpr auto get_state = [](const Ensemble& self) -> State {
  const TreeTables& t = self->tables();
  return {{t.tests, t.features, t.splits, t.children, t.missing_is_true, t.members, t.roots, t.votes, t.weights,
           t.base_values},
          t.targets,
          t.aggregate};
};

constexpr auto from_state = [](const State& state) {
  const auto& [t, targets, aggregate] = state;
  TORCH_CHECK(t.size() == 10, "not the state of a TreeEnsemble");
  return c10::make_intrusive<TreeEnsemble>(
      TreeTables{t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], targets, aggregate});
};

Ensemble from_tree_ensemble(const Tensor& nodes_modes, const Tensor& nodes_splits, const Tensor& membership_values,
                            const Tensor& leaf_weights, const Ints& nodes_featureids, const Ints& nodes_truenodeids,
                            const Ints& nodes_trueleafs, const Ints& nodes_falsenodeids, const Ints& nodes_falseleafs,
                            const Ints& nodes_missing_value_tracks_true, const Ints& tree_roots,
                            const Ints& leaf_targetids, int64_t n_targets, const std::string& aggregate_function,
                            at::ScalarType dtype) {
  return c10::make_intrusive<TreeEnsemble>(
      tree_tables(TreeEnsembleAttributes{nodes_modes, nodes_splits, membership_values, leaf_weights, nodes_featureids,
                                         nodes_truenodeids, nodes_trueleafs, nodes_falsenodeids, nodes_falseleafs,
                                         nodes_missing_value_tracks_true, tree_roots, leaf_targetids, n_targets,
                                         aggregate_function},
                  dtype));
}

Ensemble from_node_list(const Ints& nodes_treeids, const Ints& nodes_nodeids, const Ints& nodes_featureids,
                        const Ints& nodes_truenodeids, const Ints& nodes_falsenodeids,
                        const Ints& nodes_missing_value_tracks_true, const Ints& target_treeids,
                        const Ints& target_nodeids, const Ints& target_ids, const std::vector<std::string>& nodes_modes,
                        const Tensor& nodes_values, const Tensor& target_weights, const Tensor& base_values,
                        int64_t n_targets, const std::string& aggregate_function, at::ScalarType dtype) {
  return c10::make_intrusive<TreeEnsemble>(tree_tables(
      NodeListAttributes{nodes_treeids, nodes_nodeids, nodes_featureids, nodes_truenodeids, nodes_falsenodeids,
                         nodes_missing_value_tracks_true, target_treeids, target_nodeids, target_ids, nodes_modes,
                         nodes_values, target_weights, base_values, n_targets, aggregate_function},
      dtype));
}

Tensor tree_ensemble(const Tensor& x, const Ensemble& ensemble) { return (*ensemble)(x); }

std::unique_ptr<PlannedCall> plan_tree_ensemble(const PlannedOperands& of) {
  return of.arguments[1].toCustomClass<TreeEnsemble>()->planned(of.tensor(0));
}

[[maybe_unused]] const bool has_planner = (register_planner("onnx_torch::tree_ensemble", plan_tree_ensemble), true);

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  m.class_<TreeEnsemble>("TreeEnsemble")
      .def_static("from_tree_ensemble", from_tree_ensemble)
      .def_static("from_node_list", from_node_list)
      .def_pickle(get_state, from_state);

  // TreeEnsemble*: [N, F] features to [N, targets] aggregated votes, before any post_transform.
  m.def("tree_ensemble(Tensor x, __torch__.torch.classes.onnx_torch.TreeEnsemble ensemble) -> Tensor");
  m.impl("tree_ensemble", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(tree_ensemble));
}

}  // namespace onnxtorch
