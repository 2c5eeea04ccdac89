#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <vector>

#include "graph/pattern.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

void find_running(Program& program, const std::string& name) {
  const std::string forward = c10::str(R"(graph(%x, %dim, %dtype):
    %y : Tensor = aten::)",
                                       name, R"((%x, %dim, %dtype)
    return (%y))");
  const std::string backward = c10::str(R"(graph(%x, %dims, %dim, %dtype):
    %from_end : Tensor = aten::flip(%x, %dims)
    %running : Tensor = aten::)",
                                        name, R"((%from_end, %dim, %dtype)
    %y : Tensor = aten::flip(%running, %dims)
    return (%y))");
  const auto rewrite_to = [&](const std::string& pattern, bool reverse) {
    rewrite(program, pattern, [&](const Found& found, jit::Graph& graph) -> jit::Value* {
      const auto dim = found.constants.get<int64_t>(found["dim"]);
      if (reverse && (!dim || found.constants.get<std::vector<int64_t>>(found["dims"]) != std::vector{*dim}))
        return nullptr;
      return graph.insert(c10::Symbol::fromQualString("onnx_torch::" + name),
                          {found["x"], found["dim"], found["dtype"], graph.insertConstant(reverse)});
    });
  };
  rewrite_to(backward, true);
  rewrite_to(forward, false);
}

}  // namespace

void find_running(Program& program) {
  register_running();
  find_running(program, "cumsum");
  find_running(program, "cumprod");
}

}  // namespace onnxtorch
