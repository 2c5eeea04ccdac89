#include "runtime/interruptible.h"

#include "graph/loops.h"
#include "graph/symbols.h"

namespace onnxtorch {

std::shared_ptr<torch::jit::Graph> interruptible(const std::shared_ptr<torch::jit::Graph>& graph) {
  if (loops_of(graph).empty()) return graph;
  std::shared_ptr<torch::jit::Graph> copy = graph->copy();
  for (torch::jit::Node* loop : loops_of(copy)) {
    torch::jit::Node* const check = copy->create(c10::Symbol::fromQualString(kCheckRun), 0);
    loop->blocks()[0]->prependNode(check)->setSourceRange(loop->sourceRange());
  }
  keep_loops_apart(copy);
  return copy;
}

}  // namespace onnxtorch
