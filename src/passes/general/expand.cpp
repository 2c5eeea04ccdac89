#include <torch/csrc/jit/ir/ir.h>

#include "graph/known_type.h"
#include "graph/walk.h"
#include "passes/general/passes.h"
#include "translate/inlining.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Tells `facts` the type and sizes of a value; `open` counts the sizes that are not known.
void tell(Facts& facts, const jit::Value* value, size_t& open) {
  const auto type = type_of(value);
  const auto sizes = type ? value->type()->expectRef<c10::TensorType>().sizes().sizes() : std::nullopt;
  if (!sizes) return;
  std::vector<Facts::Sizes> trials;
  for (const auto& size : *sizes) {
    trials.push_back(size ? Facts::Sizes(Facts::trial_sizes(0).size(), *size) : Facts::trial_sizes(open++));
  }
  facts.set_sizes(value, *type, trials);
}

}  // namespace

bool has_kept_scripts(const Program& program) {
  bool found = false;
  for_each_node(program.graph->block(), [&](const jit::Node* node) { found |= kept_script(node->kind()) != nullptr; });
  return found;
}

void expand(Program& program) {
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    if (!kept_script(node->kind())) return;
    Facts facts;
    size_t open = 0;
    for (const jit::Value* input : node->inputs()) tell(facts, input, open);
    write_out(node, facts);
  });
  infer_types(program.graph->block());
  fold(program);
}

}  // namespace onnxtorch
