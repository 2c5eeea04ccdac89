// Ensembles of trees on contiguous device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/standard/trees.h"

namespace onnxtorch::cuda {

// The arrays of a ForestTensors.
template <typename T>
struct Forest {
  const TreeNode<T>* nodes;
  const Comparison* comparisons;
  const Tree* trees;
  MemberSets<T> sets;
  const TreeVote<T>* votes;
  const int32_t* first_vote;
  const T* base_values;  // or null
  int64_t tree_count;
  int64_t targets;
  Comparison comparison;
  Aggregate aggregate;
  bool average;
};

// Finds the leaves [trees, rows] that the rows of x [rows, features] come to.
template <typename T>
cudaError_t find_leaves(const Forest<T>& forest, int64_t rows, int64_t features, const T* x, int32_t* leaves,
                        cudaStream_t stream);

// Computes the scores [rows, targets] that leaves [trees, rows] vote for.
template <typename T>
cudaError_t add_votes(const Forest<T>& forest, int64_t rows, const int32_t* leaves, T* scores, cudaStream_t stream);

}  // namespace onnxtorch::cuda
