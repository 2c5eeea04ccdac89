#include "graph/loops.h"

#include <torch/csrc/jit/runtime/graph_iterator.h>

namespace onnxtorch {

std::vector<torch::jit::Node*> loops_of(std::shared_ptr<torch::jit::Graph> graph) {
  std::vector<torch::jit::Node*> found;
  torch::jit::DepthFirstGraphNodeIterator nodes(graph);
  while (torch::jit::Node* node = nodes.next()) {
    if (node->kind() == c10::prim::Loop) found.push_back(node);
  }
  return found;
}

}  // namespace onnxtorch
