#include "graph/loops.h"

#include <torch/csrc/jit/runtime/graph_iterator.h>

namespace onnxtorch {

namespace jit = torch::jit;

std::vector<torch::jit::Node*> loops_of(std::shared_ptr<torch::jit::Graph> graph) {
  std::vector<torch::jit::Node*> found;
  torch::jit::DepthFirstGraphNodeIterator nodes(graph);
  while (torch::jit::Node* node = nodes.next()) {
    if (node->kind() == c10::prim::Loop) found.push_back(node);
  }
  return found;
}

namespace {

// Gives a node and all nodes that it lies in, up to the one in the graph's outermost block.
std::vector<jit::Node*> around(jit::Node* node) {
  std::vector<jit::Node*> nodes;
  for (; node; node = node->owningBlock()->owningNode()) nodes.push_back(node);
  return nodes;
}

// Adds a result to a node, which is always None: a node of several results is never begun by what takes them.
void add_result(jit::Node* node) {
  const auto none = [&] { return node->owningGraph()->insertConstant(c10::IValue()); };
  if (node->kind() == c10::prim::Loop) {
    const jit::WithInsertPoint at(node);
    node->addInput(none());
    node->blocks()[0]->registerOutput(node->blocks()[0]->addInput()->setType(c10::NoneType::get()));
  } else {
    for (jit::Block* block : node->blocks()) {
      const jit::WithInsertPoint at(block);
      block->registerOutput(none());
    }
  }
  node->addOutput()->setType(c10::NoneType::get());
}

}  // namespace

void keep_loops_apart(const std::shared_ptr<jit::Graph>& graph) {
  for (jit::Node* loop : loops_of(graph)) {
    for (jit::Node* node : around(loop)) {
      if (node->outputs().size() == 1) add_result(node);
    }
  }
}

}  // namespace onnxtorch
