#include <torch/csrc/jit/ir/ir.h>

#include <vector>

#include "graph/pattern.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {

namespace jit = torch::jit;

void find_l1_norm(Program& program) {
  register_l1_norm();
  const char* const pattern = R"(graph(%x, %dims, %keep, %none, %zero, %one):
    %a : Tensor = aten::abs(%x)
    %s : Tensor = aten::sum(%a, %dims, %keep, %none)
    %z : Tensor = aten::eq(%s, %zero)
    %d : Tensor = aten::where(%z, %one, %s)
    %y : Tensor = aten::div(%x, %d)
    return (%y))";
  rewrite(program, pattern, [](const Found& found, jit::Graph& graph) -> jit::Value* {
    const bool fits = found.constants.get<std::vector<int64_t>>(found["dims"]) == std::vector<int64_t>{-1} &&
                      found.constants.get<bool>(found["keep"]) == true && found["none"]->mustBeNone() &&
                      found.is("zero", 0) && found.is("one", 1);
    return fits ? graph.insert(c10::Symbol::fromQualString("onnx_torch::normalize_rows"), {found["x"]}) : nullptr;
  });
}

}  // namespace onnxtorch
