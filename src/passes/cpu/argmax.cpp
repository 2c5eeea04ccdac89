#include <torch/csrc/jit/ir/ir.h>

#include "graph/pattern.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

void find_labels(Program& program) {
  const char* const pattern = R"(graph(%scores, %labels, %dim, %keep, %axis):
    %i : Tensor = aten::argmax(%scores, %dim, %keep)
    %y : Tensor = aten::index_select(%labels, %axis, %i)
    return (%y))";
  rewrite(program, pattern, [](const Found& found, jit::Graph& graph) -> jit::Value* {
    const bool fits = found.is("dim", 1) && found.is("axis", 0) && found.constants.get<bool>(found["keep"]) == false;
    if (!fits) return nullptr;
    return graph.insert(c10::Symbol::fromQualString("onnx_torch::label_of_largest"),
                        {found["scores"], found["labels"]});
  });
}

}  // namespace

void find_argmax(Program& program) {
  register_argmax();
  find_labels(program);
  const Constants constants(program);
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    if (node->kind() == c10::aten::argmax && constants.get<int64_t>(node->input(1)))
      replace(node, "onnx_torch::argmax", node->inputs());
  });
}

}  // namespace onnxtorch
