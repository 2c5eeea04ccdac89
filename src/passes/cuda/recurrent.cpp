#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <array>

#include "graph/constants.h"
#include "graph/walk.h"
#include "passes/cuda/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// A kind of layer, with cuDNN's number for it and the rows that its weights have for each hidden element.
struct LayerKind {
  c10::Symbol symbol;
  int64_t mode;
  int64_t gates;
};

const LayerKind* layer_kind_of(const jit::Node* node) {
  static const std::array kinds{LayerKind{c10::Symbol::aten("rnn_relu"), 0, 1},
                                LayerKind{c10::Symbol::aten("rnn_tanh"), 1, 1},
                                LayerKind{c10::Symbol::aten("lstm"), 2, 4}, LayerKind{c10::Symbol::aten("gru"), 3, 3}};
  const auto found = std::ranges::find(kinds, node->kind(), &LayerKind::symbol);
  return found == kinds.end() ? nullptr : &*found;
}

// Gives the parameters of a layer, where all of them are constants that cuDNN takes.
std::vector<at::Tensor> parameters_of(const jit::Node* node, const Constants& constants) {
  const jit::Node* const list = node->input(2)->node();
  if (list->kind() != c10::prim::ListConstruct) return {};
  std::vector<at::Tensor> parameters;
  for (const jit::Value* value : list->inputs()) {
    const auto known = constants.tensor(value);
    if (!known || !known->defined() || !at::cudnn_is_acceptable(*known)) return {};
    parameters.push_back(known->clone(at::MemoryFormat::Contiguous));
  }
  return parameters;
}

}  // namespace

void lay_out_recurrent_layers(Program& program) {
  const c10::InferenceMode inference;
  const Constants constants(program);
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    const LayerKind* const kind = layer_kind_of(node);
    if (!kind || !node->input(2)->type()->isSubtypeOf(*c10::ListType::ofTensors())) return;
    const auto has_biases = constants.get<bool>(node->input(3));
    const auto layers = constants.get<int64_t>(node->input(4));
    const auto bidirectional = constants.get<bool>(node->input(7)), batch_first = constants.get<bool>(node->input(8));
    std::vector<at::Tensor> parameters = parameters_of(node, constants);
    if (parameters.empty() || !has_biases || !layers || !bidirectional || !batch_first) return;
    const int64_t hidden = parameters[0].size(0) / kind->gates;
    at::_cudnn_rnn_flatten_weight(parameters, *has_biases ? 4 : 2, parameters[0].size(1), kind->mode, hidden,
                                  /*proj_size=*/0, *layers, *batch_first, *bidirectional);
    const jit::WithInsertPoint at(node);
    std::vector<jit::Value*> laid_out;
    for (at::Tensor& parameter : parameters) laid_out.push_back(bind_constant(program, std::move(parameter)));
    jit::Node* const list = program.graph->insertNode(program.graph->createList(c10::TensorType::get(), laid_out));
    node->replaceInput(2, list->output());
  });
}

}  // namespace onnxtorch
