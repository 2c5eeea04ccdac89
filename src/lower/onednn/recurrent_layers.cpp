#include "lower/onednn/recurrent_layers.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>

#include "lower/onednn/packed.h"
#include "passes/constants.h"
#include "passes/walk.h"
#include "translate/writes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

std::optional<Recurrent::Cell> cell_of(const jit::Node* node) {
  using Cell = Recurrent::Cell;
  static const std::unordered_map<std::string, Cell> cells = {
      {"lstm", Cell::Lstm}, {"gru", Cell::Gru}, {"rnn_tanh", Cell::Tanh}, {"rnn_relu", Cell::Relu}};
  const jit::Operator* const op = node->maybeOperator();
  if (!op || node->kind().ns() != c10::namespaces::aten || op->schema().overload_name() != "input") return {};
  const auto found = cells.find(node->kind().toUnqualString());
  return found == cells.end() ? std::nullopt : std::optional(found->second);
}

// The tensors of a list, where they are constants of float32.
std::optional<std::vector<at::Tensor>> weights_of(const jit::Value* list, const Constants& constants) {
  if (list->node()->kind() != c10::prim::ListConstruct) return constants.get<std::vector<at::Tensor>>(list);
  std::vector<at::Tensor> tensors;
  for (const jit::Value* item : list->node()->inputs()) {
    const auto known = constants.tensor(item);
    if (!known) return {};
    tensors.push_back(*known);
  }
  return tensors;
}

std::optional<Recurrent> layer_of(const jit::Node* node, const Constants& constants) {
  const auto cell = cell_of(node);
  if (!cell) return {};
  const auto weights = weights_of(node->namedInput("params"), constants);
  const auto flag = [&](const char* name) { return constants.get<bool>(node->namedInput(name)); };
  const auto biases = flag("has_biases"), bidirectional = flag("bidirectional");
  if (!weights || !biases || !bidirectional || flag("train") != false || flag("batch_first") != false) return {};
  if (constants.number(node->namedInput("num_layers")) != 1) return {};
  const bool is_float = std::ranges::all_of(
      *weights, [](const at::Tensor& t) { return t.defined() && t.scalar_type() == c10::kFloat && t.numel() > 0; });
  return is_float ? std::optional(Recurrent{*cell, *bidirectional, *biases, *weights}) : std::nullopt;
}

class Packing {
 public:
  explicit Packing(Program& program) : program_(program), graph_(*program.graph), constants_(program) {}

  void run() {
    for_each_node(graph_.block(), [&](jit::Node* node) {
      if (const auto layer = layer_of(node, constants_)) replace(node, *layer);
    });
  }

 private:
  void replace(jit::Node* node, const Recurrent& layer) {
    const jit::WithInsertPoint at(node);
    jit::Value* states = node->namedInput("hx");
    if (layer.cell != Recurrent::Cell::Lstm)
      states = graph_.insertNode(graph_.createList(c10::TensorType::get(), {states}))->output();
    jit::Value* const operation = bind_constant(program_, IValue(packed(layer)));
    jit::Node* const packed = graph_.insertNode(graph_.create(c10::Symbol::fromQualString("onnx_torch::recurrent"),
                                                              {node->namedInput("input"), operation, states}));
    packed->output()->setType(c10::ListType::ofTensors());
    packed->setSourceRange(node->sourceRange());
    jit::Node* const results = graph_.insertNode(graph_.createListUnpack(packed->output(), node->outputs().size()));
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      results->output(i)->setType(node->output(i)->type());
      node->output(i)->replaceAllUsesWith(results->output(i));
    }
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
};

}  // namespace

void pack_recurrent_layers(Program& program) {
  register_onednn();
  Packing(program).run();
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
