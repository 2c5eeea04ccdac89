#include "passes/cpu/packed_weights.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/custom_class.h>

#include <utility>

#include "graph/constants.h"
#include "graph/walk.h"
#include "kernels/cpu/packed/packed.h"

#ifdef ONNX_TORCH_ONEDNN
#include "kernels/cpu/onednn/operators.h"
#endif

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Gives the program's packed operators, in the order of its constants.
std::vector<c10::intrusive_ptr<Packed>> packed_of(const Program& program) {
  register_packed();
  const auto& type = c10::getCustomClassType<c10::intrusive_ptr<Packed>>();
  std::vector<c10::intrusive_ptr<Packed>> result;
  for (const Constant& constant : program.constants) {
    if (constant.value.isObject() && *constant.value.type() == *type)
      result.push_back(constant.value.toCustomClass<Packed>());
  }
  return result;
}

}  // namespace

std::vector<std::vector<SavedWeights>> saved_weights(const Program& program) {
  std::vector<std::vector<SavedWeights>> result;
  for (const auto& operation : packed_of(program)) result.push_back(operation->saved());
  return result;
}

void take_weights(const Program& program, std::vector<std::vector<SavedWeights>> saved) {
  const auto operations = packed_of(program);
  if (operations.size() != saved.size()) throw InvalidModelError("the file's packed operators are not the model's");
  for (size_t i = 0; i < saved.size(); ++i) operations[i]->take(std::move(saved[i]));
}

void lay_out_weights(const Program& program) {
  register_packed();
  const auto& packed = c10::getCustomClassType<c10::intrusive_ptr<Packed>>();
  const Constants constants(program);
  for_each_node(program.graph->block(), [&](const jit::Node* node) {
    if (node->inputs().size() < 2 || *node->input(1)->type() != *packed) return;
    const auto& type = node->input(0)->type()->expectRef<c10::TensorType>();
    const auto sizes = type.sizes().concrete_sizes();
    const auto operation = constants(node->input(1));
    if (sizes && operation) operation->toCustomClass<Packed>()->expect(*sizes);
  });
}

#ifdef ONNX_TORCH_ONEDNN
std::string layouts_version() { return onednn_version(); }
#else
std::string layouts_version() { return "none"; }
#endif

}  // namespace onnxtorch
