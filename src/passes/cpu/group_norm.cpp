#include <torch/csrc/jit/ir/ir.h>

#include <vector>

#include "graph/constants.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Gives the operands of onnx_torch::group_norm; none where a node is no such normalization.
std::vector<jit::Value*> operands_of(jit::Node* node, const Constants& constants) {
  if (node->matches("aten::group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, "
                    "float eps=1e-05, bool cudnn_enabled=True) -> Tensor")) {
    return {node->input(0), node->input(1), node->input(2), node->input(3), node->input(4)};
  }
  const bool is_instance_norm =
      node->matches(
          "aten::instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, "
          "Tensor? running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled) -> "
          "Tensor") &&
      node->input(3)->mustBeNone() && node->input(4)->mustBeNone() && constants.get<bool>(node->input(5)) == true;
  if (!is_instance_norm) return {};
  jit::Value* const each = node->owningGraph()->insertConstant(c10::IValue());
  return {node->input(0), each, node->input(1), node->input(2), node->input(7)};
}

}  // namespace

void replace_group_norms(Program& program) {
  register_group_norm();
  const Constants constants(program);
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    const jit::WithInsertPoint at(node);
    const auto operands = operands_of(node, constants);
    if (!operands.empty()) replace(node, "onnx_torch::group_norm", operands);
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
