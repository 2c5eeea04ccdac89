#include <torch/csrc/jit/ir/ir.h>

#include "graph/known_type.h"
#include "graph/walk.h"
#include "passes/general/passes.h"
#include "translate/inlining.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Tells the type and sizes of a value, where all are known.
void tell(Facts& facts, const jit::Value* value) {
  const auto type = type_of(value);
  const auto sizes = type ? value->type()->expectRef<c10::TensorType>().sizes().concrete_sizes() : std::nullopt;
  if (sizes) facts.set_shape(value, *type, *sizes);
}

}  // namespace

bool has_kept_scripts(const Program& program) {
  bool found = false;
  for_each_node(program.graph->block(), [&](const jit::Node* node) { found |= kept_script(node->kind()) != nullptr; });
  return found;
}

void expand(Program& program) {
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    Facts facts;
    for (const jit::Value* input : node->inputs()) tell(facts, input);
    write_out(node, facts);
  });
  infer_types(program.graph->block());
}

}  // namespace onnxtorch
