#include <torch/csrc/jit/ir/ir.h>

#include "graph/pattern.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {

namespace jit = torch::jit;

void find_softmax(Program& program) {
  register_softmax();
  const char* const pattern = R"(graph(%x, %dim, %dtype):
    %y : Tensor = aten::softmax(%x, %dim, %dtype)
    return (%y))";
  rewrite(program, pattern, [](const Found& found, jit::Graph& graph) -> jit::Value* {
    if (!found["dtype"]->mustBeNone() || !found.is_last("dim", "x")) return nullptr;
    return graph.insert(c10::Symbol::fromQualString("onnx_torch::softmax"), {found["x"]});
  });
}

}  // namespace onnxtorch
