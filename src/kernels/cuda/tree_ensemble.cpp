#include "kernels/standard/tree_ensemble.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/cuda/current.h"
#include "kernels/cuda/tree_ensemble.h"

namespace onnxtorch::cuda {
namespace {

constexpr int64_t kLeaves = int64_t{1} << 24;  // so many leaves are found at a time

template <typename Element>
const Element* elements(const at::Tensor& bytes) {
  return bytes.numel() == 0 ? nullptr : static_cast<const Element*>(bytes.const_data_ptr());
}

template <typename T>
Forest<T> forest_of(const ForestTensors& tensors, int64_t targets) {
  return {
      .nodes = elements<TreeNode<T>>(tensors.nodes),
      .comparisons = elements<Comparison>(tensors.comparisons),
      .trees = elements<Tree>(tensors.trees),
      .sets = {elements<T>(tensors.members), elements<int32_t>(tensors.first_member)},
      .votes = elements<TreeVote<T>>(tensors.votes),
      .first_vote = elements<int32_t>(tensors.first_vote),
      .base_values = elements<T>(tensors.base_values),
      .tree_count = tensors.trees.numel() / static_cast<int64_t>(sizeof(Tree)),
      .targets = targets,
      .comparison = tensors.comparison,
      .aggregate = tensors.aggregate,
      .average = tensors.average,
  };
}

at::Tensor tree_ensemble(const at::Tensor& x, const c10::intrusive_ptr<TreeEnsemble>& ensemble) {
  const at::Tensor rows = ensemble->rows(x);
  const ForestTensors& tensors = ensemble->on(x.device());
  tensors.check_features(rows);
  const int64_t targets = ensemble->tables().targets;
  at::Tensor scores = at::empty({rows.size(0), targets}, rows.options());
  AT_DISPATCH_FLOATING_TYPES(rows.scalar_type(), "tree_ensemble", [&] {
    const Forest<scalar_t> forest = forest_of<scalar_t>(tensors, targets);
    const int64_t rows_at_a_time = std::max<int64_t>(kLeaves / std::max<int64_t>(forest.tree_count, 1), 1);
    for (int64_t first = 0; first < scores.numel() / std::max<int64_t>(targets, 1); first += rows_at_a_time) {
      const int64_t count = std::min(rows_at_a_time, rows.size(0) - first);
      at::Tensor leaves = at::empty({forest.tree_count, count}, rows.options().dtype(at::kInt));
      auto* const leaf = leaves.mutable_data_ptr<int32_t>();
      on_device_of(rows, [&](cudaStream_t stream) {
        const auto* from = rows.const_data_ptr<scalar_t>() + first * rows.size(1);
        return find_leaves(forest, count, rows.size(1), from, leaf, stream);
      });
      on_device_of(rows, [&](cudaStream_t stream) {
        return add_votes(forest, count, leaf, scores.mutable_data_ptr<scalar_t>() + first * targets, stream);
      });
    }
  });
  return scores;
}

}  // namespace

TORCH_LIBRARY_IMPL(onnx_torch, CUDA, m) { m.impl("tree_ensemble", &tree_ensemble); }

}  // namespace onnxtorch::cuda
