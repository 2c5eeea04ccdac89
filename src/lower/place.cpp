#include "lower/place.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

void move_constants(jit::Block* block, c10::Device device) {
  for (auto node = block->nodes().begin(); node != block->nodes().end();) {
    jit::Node* const current = *node++;
    for (jit::Block* inner : current->blocks()) move_constants(inner, device);
    if (current->kind() != c10::prim::Constant) continue;
    const auto value = jit::toIValue(current->output());
    if (!value || !value->isDevice()) continue;
    const jit::WithInsertPoint at(current);
    current->output()->replaceAllUsesWith(current->owningGraph()->insertConstant(device));
    current->destroy();
  }
}

}  // namespace

Program placed(Program program, c10::Device device) {
  if (device.is_cpu()) return program;
  program.graph = program.graph->copy();
  move_constants(program.graph->block(), device);
  for (Bound& bound : program.bound) {
    if (bound.value.isTensor()) bound.value = bound.value.toTensor().to(device);
  }
  return program;
}

}  // namespace onnxtorch
