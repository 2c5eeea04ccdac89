#include "passes/device/place.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <iomanip>
#include <optional>
#include <sstream>

#include "graph/walk.h"
#include "import/device_copies.h"
#include "onnx_torch/error.h"
#include "passes/cuda/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Gives a constant as it is on the device; nothing where it stays.
std::optional<c10::IValue> moved(const c10::IValue& value, c10::Device device) {
  if (value.isDevice()) return device;
  if (value.isTensor() && value.toTensor().defined()) return value.toTensor().to(device);
  if (!value.isTensorList()) return {};
  c10::List<at::Tensor> items;
  for (const at::Tensor& item : value.toTensorVector()) items.push_back(item.to(device));
  return items;
}

// Moves constants: the device itself, and what TorchScript has computed of constants.
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

std::string gigabytes(double bytes) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << bytes / 1e9 << " GB";
  return text.str();
}

// Gives the bytes that the tensors of a program that is on no device yet take there.
double bytes_of_weights(const Program& program) {
  double bytes = 0;
  for (const Constant& constant : program.constants) {
    if (constant.value.isTensor()) bytes += static_cast<double>(constant.value.toTensor().nbytes());
  }
  return bytes;
}

std::string too_little_memory(double needed, c10::Device device) {
  c10::DeviceAllocator* const allocator = c10::getDeviceAllocator(device.type());
  allocator->emptyCache();
  const auto [free, all] = allocator->getMemoryInfo(device.index());
  return "the device " + device.str() + " has too little memory for the model: its weights take " + gigabytes(needed) +
         ", and " + gigabytes(static_cast<double>(free)) + " of " + gigabytes(static_cast<double>(all)) + " are free";
}

void move_weights(Program& program, c10::Device device) {
  const double needed = bytes_of_weights(program);
  try {
    for (Constant& constant : program.constants) {
      if (!constant.value.isTensor()) continue;
      const at::Tensor& tensor = constant.value.toTensor();
      constant.value = constant.source ? program.copies->get(constant.source, tensor, device) : tensor.to(device);
    }
  } catch (const c10::OutOfMemoryError&) {
    program.constants.clear();  // the tensors that are there already count as free
    throw DeviceError(too_little_memory(needed, device));
  }
}

}  // namespace

Program placed(Program program, c10::Device device) {
  if (device.is_cpu()) return program;
  program.graph = program.graph->copy();
  move_constants(program.graph->block(), device);
  move_weights(program, device);
  take_all_types(program);
  fill_numbers(program);
  take_masks(program);
  return program;
}

}  // namespace onnxtorch
