#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tree_ensemble.h"

namespace onnxtorch::cuda {

template <typename T>
cudaError_t find_leaves(const Forest<T>& forest, int64_t rows, int64_t features, const T* x, int32_t* leaves,
                        cudaStream_t stream) {
  return for_each(forest.tree_count * rows, stream, [=] __device__(int64_t i) {
    const Tree tree = forest.trees[i / rows];
    const T* const row = x + i % rows * features;
    int32_t at = tree.root;
    for (int32_t level = 0; level < tree.depth; ++level) {
      const TreeNode<T> node = forest.nodes[at];
      const T value = row[node.feature];
      const Comparison comparison =
          forest.comparison == Comparison::Various ? forest.comparisons[at] : forest.comparison;
      const bool side = std::isnan(value) ? node.missing_child : holds(comparison, value, node.threshold, forest.sets);
      const int32_t next = node.children[side];
      if (next == at) break;
      at = next;
    }
    leaves[i] = at;
  });
}

template cudaError_t find_leaves(const Forest<float>&, int64_t, int64_t, const float*, int32_t*, cudaStream_t);
template cudaError_t find_leaves(const Forest<double>&, int64_t, int64_t, const double*, int32_t*, cudaStream_t);

namespace {

constexpr int kRows = 32, kShares = 16;  // of a block: rows, and threads that share out the trees of each
constexpr int64_t kMaxTargets = 65535;   // the most targets that a grid has blocks for

template <Aggregate aggregate, typename T>
__device__ T with_votes(const Forest<T>& forest, int32_t leaf, int64_t target, T score) {
  if (forest.targets == 1) return aggregated<aggregate>(score, forest.nodes[leaf].threshold);
  const TreeVote<T>* const votes = forest.votes + forest.first_vote[leaf];
  const int64_t count = forest.first_vote[leaf + 1] - forest.first_vote[leaf];
  int64_t i = count_before(count, [&](int64_t vote) { return votes[vote].target < target; });
  for (; i < count && votes[i].target == target; ++i) score = aggregated<aggregate>(score, votes[i].weight);
  return score;
}

// Adds up votes in an order that depends on the number of trees alone, so that results do not change from run to run.
template <Aggregate aggregate, typename T>
__global__ void add_votes_of_rows(Forest<T> forest, int64_t rows, const int32_t* leaves, T* scores) {
  __shared__ T shares[kShares][kRows];
  const int lane = static_cast<int>(threadIdx.x) % kRows, share = static_cast<int>(threadIdx.x) / kRows;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + lane;
  for (int64_t target = blockIdx.y; target < forest.targets; target += gridDim.y) {
    T score = kNoVote<aggregate, T>;
    for (int64_t tree = share; row < rows && tree < forest.tree_count; tree += kShares) {
      score = with_votes<aggregate>(forest, leaves[tree * rows + row], target, score);
    }
    shares[share][lane] = score;
    __syncthreads();
    if (share == 0 && row < rows) {
      for (int other = 1; other < kShares; ++other) score = aggregated<aggregate>(score, shares[other][lane]);
      const T* const base_value = forest.base_values ? forest.base_values + target : nullptr;
      scores[row * forest.targets + target] =
          finished_score<aggregate>(score, forest.average, forest.tree_count, base_value);
    }
    __syncthreads();
  }
}

}  // namespace

template <typename T>
cudaError_t add_votes(const Forest<T>& forest, int64_t rows, const int32_t* leaves, T* scores, cudaStream_t stream) {
  const dim3 blocks(static_cast<unsigned>((rows + kRows - 1) / kRows),
                    static_cast<unsigned>(std::min(forest.targets, kMaxTargets)));
  const auto kernel = forest.aggregate == Aggregate::Sum   ? add_votes_of_rows<Aggregate::Sum, T>
                      : forest.aggregate == Aggregate::Min ? add_votes_of_rows<Aggregate::Min, T>
                                                           : add_votes_of_rows<Aggregate::Max, T>;
  return launch(kernel, blocks, kRows * kShares, stream, forest, rows, leaves, scores);
}

template cudaError_t add_votes(const Forest<float>&, int64_t, const int32_t*, float*, cudaStream_t);
template cudaError_t add_votes(const Forest<double>&, int64_t, const int32_t*, double*, cudaStream_t);

}  // namespace onnxtorch::cuda
