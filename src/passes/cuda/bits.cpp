#include <torch/csrc/jit/ir/ir.h>

#include "graph/constants.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "passes/cuda/passes.h"
#include "passes/general/linear_of_bits.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

jit::Value* bind_tensor(Program& program, const at::Tensor& tensor) {
  return bind_constant(program, tensor.defined() ? c10::IValue(tensor) : c10::IValue());
}

}  // namespace

void multiply_bits(Program& program) {
  const Constants constants(program);
  jit::Graph& graph = *program.graph;
  for_each_node(graph.block(), [&](jit::Node* node) {
    const auto linear = linear_of_bits(node, constants);
    if (!linear) return;
    const jit::WithInsertPoint at(node);
    replace(node, "onnx_torch::linear_of_bits",
            {node->namedInput("A"), bind_tensor(program, linear->numbers), bind_tensor(program, linear->scales),
             bind_tensor(program, linear->zero_points), bind_tensor(program, linear->values),
             bind_tensor(program, linear->bias), graph.insertConstant(linear->in), graph.insertConstant(linear->bits)});
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
