// What nodes write to memory, which few graphs do. torch's own analysis of it takes longer than most passes.
#pragma once

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <optional>

namespace onnxtorch {

// Whether a node of the block, or of one inside it, may write to what other nodes read.
bool may_write(const torch::jit::Block& block);

// Whether there are branches, loops, or values on the host that are not constant.
bool has_host_work(const torch::jit::Graph& graph);

// Takes out the nodes that nothing needs.
void eliminate_dead_code(const std::shared_ptr<torch::jit::Graph>& graph);

// Lets one node stand for all that compute the same.
void share_equal_nodes(std::shared_ptr<torch::jit::Graph>& graph);

// Tells of a graph's nodes, as they are when this is made, whether something writes to what they read or return.
class Writers {
 public:
  explicit Writers(const std::shared_ptr<torch::jit::Graph>& graph) {
    if (may_write(*graph->block())) aliases_.emplace(graph);
  }
  bool has_writers(const torch::jit::Node* node) const { return aliases_ && aliases_->hasWriters(node); }

 private:
  std::optional<torch::jit::AliasDb> aliases_;
};

}  // namespace onnxtorch
