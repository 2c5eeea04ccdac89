// What nodes write to memory, which few graphs do. torch's own analysis of it takes longer than most passes.
#pragma once

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <optional>

namespace onnxtorch {

// Whether a node of the block, or of one inside it, may write to what other nodes read.
bool may_write(const torch::jit::Block& block);

// Whether an operator that reads it writes to this very value.
bool is_written(const torch::jit::Value* value);

// Whether all that is done with a list that the graph makes is to read it, to append to it and to set items, so that
// no other value stands for it. The graph may return it.
bool is_own_list(const torch::jit::Value* list);

// Whether all that a block writes to are such lists.
bool writes_to_own_lists(const torch::jit::Block& block);

// Whether there are branches, loops, or values on the host that are not constant.
bool has_host_work(const torch::jit::Graph& graph);

// Takes out the nodes that nothing needs.
void eliminate_dead_code(const std::shared_ptr<torch::jit::Graph>& graph);

// Lets one node stand for all that compute the same.
void share_equal_nodes(std::shared_ptr<torch::jit::Graph>& graph);

// Tells of a graph's nodes whether something writes to what they read or return. torch's analysis is made when it is
// first needed, of the graph as it is then.
class Writers {
 public:
  explicit Writers(std::shared_ptr<torch::jit::Graph> graph);
  bool has_writers(const torch::jit::Node* node) const;

 private:
  bool may_be_written(const torch::jit::Value* value) const;

  std::shared_ptr<torch::jit::Graph> graph_;
  bool any_, any_tensor_;  // whether something writes at all, and to tensors
  mutable std::optional<torch::jit::AliasDb> aliases_;
};

}  // namespace onnxtorch
