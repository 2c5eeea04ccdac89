#include <torch/csrc/jit/ir/ir.h>

#include <string>

#include "graph/pattern.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {

namespace jit = torch::jit;

void find_softmax(Program& program) {
  register_softmax();
  for (const std::string name : {"softmax", "log_softmax"}) {
    const std::string pattern =
        "graph(%x, %dim, %dtype):\n  %y : Tensor = aten::" + name + "(%x, %dim, %dtype)\n  return (%y)";
    rewrite(program, pattern, [&](const Found& found, jit::Graph& graph) -> jit::Value* {
      if (!found["dtype"]->mustBeNone() || !found.is_last("dim", "x")) return nullptr;
      return graph.insert(c10::Symbol::fromQualString("onnx_torch::" + name), {found["x"]});
    });
  }
}

}  // namespace onnxtorch
