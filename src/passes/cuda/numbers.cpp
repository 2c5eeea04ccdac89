#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <vector>

#include "graph/program.h"
#include "graph/walk.h"
#include "kernels/composite/operators.h"
#include "passes/cuda/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

bool lies_on_device(const jit::Value* device) {
  const auto known = jit::toIValue(device);
  return known && known->isDevice() && !known->toDevice().is_cpu();
}

// Gives the operator that fills a tensor with a flag, a number or integers; null where the operand is none of these.
const char* operator_for(const jit::Value* numbers) {
  if (numbers->type()->kind() == c10::TypeKind::BoolType) return "onnx_torch::filled_flag";
  if (numbers->type()->isSubtypeOf(*c10::NumberType::get())) return "onnx_torch::filled_number";
  return numbers->type()->isSubtypeOf(*c10::ListType::ofInts()) ? "onnx_torch::filled_numbers" : nullptr;
}

}  // namespace

void fill_numbers(Program& program) {
  register_filled_numbers();
  for_each_node(program.graph->block(), [](jit::Node* node) {
    if (node->kind() != c10::aten::tensor) return;
    jit::Value *const numbers = node->input(0), *const dtype = node->input(1), *const device = node->input(2);
    if (!lies_on_device(device) || dtype->mustBeNone()) return;
    if (const char* const name = operator_for(numbers)) {
      replace(node, name, std::vector<jit::Value*>{numbers, dtype, device});
      node->destroy();
    }
  });
}

}  // namespace onnxtorch
