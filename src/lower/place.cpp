#include "lower/place.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/walk.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

void move_constants(jit::Block* block, c10::Device device) {
  for_each_node(block, [&](jit::Node* node) {
    if (node->kind() != c10::prim::Constant) return;
    const auto value = jit::toIValue(node->output());
    if (!value || !value->isDevice()) return;
    const jit::WithInsertPoint at(node);
    node->output()->replaceAllUsesWith(node->owningGraph()->insertConstant(device));
    node->destroy();
  });
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
