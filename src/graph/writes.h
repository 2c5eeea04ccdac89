// The writes of nodes to memory, which few graphs have. torch's own analysis of them takes longer than most passes.
#pragma once

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <optional>

namespace onnxtorch {

// Tells whether a node of the block, or of one inside it, may write to what other nodes read.
bool may_write(const torch::jit::Block& block);

// Tells whether an operator that reads the value writes to this very value.
bool is_written(const torch::jit::Value* value);

// Tells whether a list that the graph makes is only read, appended to and has its items set, so that no other value
// stands for it. The graph may return it.
bool is_own_list(const torch::jit::Value* list);

// Tells whether a block writes to nothing but such lists.
bool writes_to_own_lists(const torch::jit::Block& block);

// Tells whether there are branches, loops, or values on the host that are not constant.
bool has_host_work(const torch::jit::Graph& graph);

// Takes out the nodes that nothing needs.
void eliminate_dead_code(const std::shared_ptr<torch::jit::Graph>& graph);

// Lets one node stand for all that compute the same.
void share_equal_nodes(std::shared_ptr<torch::jit::Graph>& graph);

// The writers in a graph, by which one asks of a node whether something writes to what it reads or returns. torch's
// analysis is made when it is first needed, of the graph as it is then.
class Writers {
 public:
  explicit Writers(std::shared_ptr<torch::jit::Graph> graph);
  bool has_writers(const torch::jit::Node* node) const;

 private:
  bool may_be_written(const torch::jit::Value* value) const;

  std::shared_ptr<torch::jit::Graph> graph_;
  bool any_, any_tensor_;  // something writes at all; something writes to tensors
  mutable std::optional<torch::jit::AliasDb> aliases_;
};

}  // namespace onnxtorch
