// Functions that go through a graph, node by node, and put other nodes in the place of its nodes.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace onnxtorch {

// Visits each node, after those of its inner blocks. The visit may destroy it, and insert others before it.
template <typename Visit>
void for_each_node(torch::jit::Block* block, const Visit& visit) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    torch::jit::Node* const node = *it++;
    for (torch::jit::Block* inner : node->blocks()) for_each_node(inner, visit);
    visit(node);
  }
}

// Replaces the node by an operator with results of the same types. The node is left without a use.
inline void replace(torch::jit::Node* node, const char* by, at::ArrayRef<torch::jit::Value*> inputs) {
  const torch::jit::WithInsertPoint at(node);
  torch::jit::Graph& graph = *node->owningGraph();
  torch::jit::Node* const made =
      graph.insertNode(graph.create(c10::Symbol::fromQualString(by), inputs, node->outputs().size()));
  made->setSourceRange(node->sourceRange());
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    made->output(i)->setType(node->output(i)->type());
    node->output(i)->replaceAllUsesWith(made->output(i));
  }
}

}  // namespace onnxtorch
