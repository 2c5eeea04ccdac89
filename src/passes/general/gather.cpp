#include <torch/csrc/jit/ir/ir.h>

#include "graph/constants.h"
#include "graph/symbols.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "kernels/cpu/operators.h"
#include "passes/general/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Gives the size of a dimension, where the graph knows it.
std::optional<int64_t> known_size(const jit::Value* value, int64_t axis) {
  const auto sizes = value->type()->expectRef<c10::TensorType>().sizes();
  const auto rank = sizes.size();
  if (!rank || *rank == 0) return {};
  const auto dims = static_cast<int64_t>(*rank);
  return axis < -dims || axis >= dims ? std::nullopt : sizes[axis < 0 ? axis + dims : axis];
}

// Tells whether a value is the size of the dimension that a node gathers from.
bool is_size(const jit::Value* size, const jit::Value* data, const jit::Value* axis, const Constants& constants) {
  const auto number = constants.get<int64_t>(axis);
  if (!number) return false;
  if (const auto known = constants.number(size)) return known_size(data, *number) == static_cast<int64_t>(*known);
  return size->node()->matches("aten::size(Tensor self, int dim) -> int") && size->node()->input(0) == data &&
         constants.get<int64_t>(size->node()->input(1)) == number;
}

// Gives the indices i of which the node takes `where(i < 0, i + size, i)`; null where it takes others.
jit::Value* from_either_end(const jit::Node* node, const Constants& constants) {
  const jit::Node* const where = node->input(2)->node();
  if (!where->matches(kWhere)) return nullptr;
  jit::Value* const indices = where->input(2);
  const jit::Node* const negative = where->input(0)->node();
  const jit::Node* const sum = where->input(1)->node();
  const bool fits = negative->matches("aten::lt(Tensor self, Scalar other) -> Tensor") &&
                    negative->input(0) == indices && constants.number(negative->input(1)) == 0.0 &&
                    sum->matches("aten::add(Tensor self, Scalar other, Scalar alpha=1) -> Tensor") &&
                    sum->input(0) == indices && constants.number(sum->input(2)) == 1.0 &&
                    is_size(sum->input(1), node->input(0), node->input(1), constants);
  return fits ? indices : nullptr;
}

}  // namespace

void find_gather(Program& program) {
  register_gather();
  const Constants constants(program);
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    const bool is_select = node->kind() == c10::aten::index_select;
    if (!is_select && node->kind() != c10::aten::gather) return;
    if (jit::Value* const indices = from_either_end(node, constants)) {
      const char* const by = is_select ? "onnx_torch::gather" : "onnx_torch::gather_elements";
      replace(node, by, {node->input(0), node->input(1), indices});
    }
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
