// The nodes of decision trees as kernels go down them, the tests of a node, and the addition of votes.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/both_sides.h"

namespace onnxtorch {

enum class Aggregate : uint8_t { Sum, Min, Max };

template <Aggregate aggregate, typename T>
constexpr T kNoVote = aggregate == Aggregate::Sum   ? T(0)
                      : aggregate == Aggregate::Min ? std::numeric_limits<T>::infinity()
                                                    : -std::numeric_limits<T>::infinity();

template <Aggregate aggregate, typename T>
ONNX_TORCH_BOTH T aggregated(T a, T b) {
  if constexpr (aggregate == Aggregate::Sum) return a + b;
  if constexpr (aggregate == Aggregate::Min) return b < a ? b : a;
  if constexpr (aggregate == Aggregate::Max) return b > a ? b : a;
}

// The relation of a feature to the threshold that a node tests. The other tests are these with the children exchanged.
enum class Comparison : uint8_t { LessEqual, Less, Equal, Member, Various };

// A node. Both children of a leaf are the leaf itself; with a single target its threshold is its vote.
template <typename T>
struct TreeNode {
  T threshold;  // with Comparison::Member, the index of the set
  uint32_t feature : 31;
  uint32_t missing_child : 1;
  std::array<int32_t, 2> children;  // where the comparison fails, and where it holds
};

struct Tree {
  int32_t root;
  int32_t depth;
};

template <typename T>
struct TreeVote {
  int32_t target;
  T weight;
};

// Sorted sets, one after another: set i is [members + begins[i], members + begins[i + 1]).
template <typename T>
struct MemberSets {
  const T* members;
  const int32_t* begins;

  ONNX_TORCH_BOTH bool have(int64_t set, T value) const {
    const T* const first = members + begins[set];
    const int64_t count = begins[set + 1] - begins[set];
    const int64_t before = count_before(count, [&](int64_t i) { return first[i] < value; });
    return before < count && first[before] == value;
  }
};

template <Comparison comparison, typename T>
ONNX_TORCH_BOTH bool holds(T value, T threshold, const MemberSets<T>& sets) {
  if constexpr (comparison == Comparison::LessEqual) return value <= threshold;
  if constexpr (comparison == Comparison::Less) return value < threshold;
  if constexpr (comparison == Comparison::Equal) return value == threshold;
  if constexpr (comparison == Comparison::Member) return sets.have(static_cast<int64_t>(threshold), value);
}

template <typename T>
ONNX_TORCH_BOTH bool holds(Comparison comparison, T value, T threshold, const MemberSets<T>& sets) {
  switch (comparison) {
    case Comparison::Less:
      return holds<Comparison::Less>(value, threshold, sets);
    case Comparison::Equal:
      return holds<Comparison::Equal>(value, threshold, sets);
    case Comparison::Member:
      return holds<Comparison::Member>(value, threshold, sets);
    default:
      return holds<Comparison::LessEqual>(value, threshold, sets);
  }
}

// Turns a target's votes into its score.
template <Aggregate aggregate, typename T>
ONNX_TORCH_BOTH T finished_score(T votes, bool average, int64_t trees, const T* base_value) {
  if (votes == kNoVote<aggregate, T>) votes = 0;
  if (average) votes /= static_cast<T>(trees);
  return base_value ? votes + *base_value : votes;
}

}  // namespace onnxtorch
