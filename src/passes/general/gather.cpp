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
const auto kPlaceElements = c10::Symbol::fromQualString("onnx_torch::scatter_from_either_end");

}  // namespace

bool is_by_index(c10::Symbol script) {
  return script == kPickRows || script == kPickElements || script == kPlaceElements;
}

void take_gathers(Program& program) {
  register_gather();
  register_scatter();
  for_each_node(program.graph->block(), [](jit::Node* node) {
    if (!is_by_index(node->kind())) return;
    const c10::Symbol by = node->kind() == kPickRows       ? kGather
                           : node->kind() == kPickElements ? kGatherElements
                                                           : kScatterElements;
    replace(node, by.toQualString(), node->inputs());
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
