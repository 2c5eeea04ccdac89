#include <torch/csrc/jit/ir/ir.h>

#include "graph/symbols.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/general/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// The scripts of src/ops/scripts/indexing.py.
const auto kPickRows = c10::Symbol::fromQualString("onnx_torch::index_select_from_either_end");
const auto kPickElements = c10::Symbol::fromQualString("onnx_torch::gather_from_either_end");

}  // namespace

bool is_gather(c10::Symbol script) { return script == kPickRows || script == kPickElements; }

void take_gathers(Program& program) {
  register_gather();
  for_each_node(program.graph->block(), [](jit::Node* node) {
    if (!is_gather(node->kind())) return;
    const c10::Symbol by = node->kind() == kPickRows ? kGather : kGatherElements;
    replace(node, by.toQualString(), node->inputs());
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
