#include "lower/place.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/walk.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// A constant as it is on the device; nothing where it stays.
std::optional<c10::IValue> moved(const c10::IValue& value, c10::Device device) {
  if (value.isDevice()) return device;
  if (value.isTensor() && value.toTensor().defined()) return value.toTensor().to(device);
  if (!value.isTensorList()) return {};
  c10::List<at::Tensor> items;
  for (const at::Tensor& item : value.toTensorVector()) items.push_back(item.to(device));
  return items;
}

// The device itself, and what TorchScript has computed of constants.
void move_constants(jit::Block* block, c10::Device device) {
  for_each_node(block, [&](jit::Node* node) {
    if (node->kind() != c10::prim::Constant) return;
    const auto value = jit::toIValue(node->output());
    const auto there = value ? moved(*value, device) : std::nullopt;
    if (!there) return;
    const jit::WithInsertPoint at(node);
    node->output()->replaceAllUsesWith(node->owningGraph()->insertConstant(*there));
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
