#include "passes/cpu/packed/recurrent_layers.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>

#include "graph/constants.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "passes/cpu/passes.h"

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

// Gives the tensors of a list, where they are constants.
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

// Tells whether the weights are of one layer's sizes, for each direction.
bool fits(const Recurrent& layer) {
  const size_t directions = layer.bidirectional ? 2 : 1, each = layer.has_biases ? 4 : 2;
  const std::vector<at::Tensor>& all = layer.parameters;
  if (all.size() != directions * each || all[0].dim() != 2 || all[1].dim() != 2) return false;
  const int64_t gates = layer.cell == Recurrent::Cell::Lstm ? 4 : layer.cell == Recurrent::Cell::Gru ? 3 : 1;
  const int64_t of_gates = gates * all[1].size(1);
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t part = i % each;
    if (all[i].sizes() != (part < 2 ? at::DimVector{of_gates, all[part].size(1)} : at::DimVector{of_gates}))
      return false;
  }
  return true;
}

std::optional<Recurrent> layer_of_aten(const jit::Node* node, const Constants& constants) {
  const auto cell = cell_of(node);
  if (!cell) return {};
  const auto weights = weights_of(node->namedInput("params"), constants);
  const auto flag = [&](const char* name) { return constants.get<bool>(node->namedInput(name)); };
  const auto biases = flag("has_biases"), bidirectional = flag("bidirectional");
  if (!weights || !biases || !bidirectional || flag("train") != false || flag("batch_first") != false) return {};
  if (constants.number(node->namedInput("num_layers")) != 1) return {};
  const bool is_float = std::ranges::all_of(
      *weights, [](const at::Tensor& t) { return t.defined() && t.scalar_type() == c10::kFloat && t.numel() > 0; });
  if (!is_float) return {};
  const Recurrent layer{*cell, *bidirectional, *biases, *weights};
  return fits(layer) ? std::optional(layer) : std::nullopt;
}

class LayerPacking {
 public:
  explicit LayerPacking(Program& program) : program_(program), graph_(*program.graph), constants_(program) {}

  void run() {
    for_each_node(graph_.block(), [&](jit::Node* node) {
      if (const auto layer = layer_of_aten(node, constants_)) replace(node, *layer);
    });
  }

 private:
  void replace(jit::Node* node, const Recurrent& layer) {
    const jit::WithInsertPoint at(node);
    jit::Value* states = node->namedInput("hx");
    if (layer.cell != Recurrent::Cell::Lstm) states = list_of(graph_, states);
    const auto results = insert_packed(program_, layer, node->namedInput("input"), states);
    for (size_t i = 0; i < results.size(); ++i) {
      results[i]->setType(node->output(i)->type());
      node->output(i)->replaceAllUsesWith(results[i]);
    }
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
};

}  // namespace

at::ArrayRef<jit::Value*> insert_packed(Program& program, const Recurrent& layer, jit::Value* x, jit::Value* states,
                                        jit::Value* within) {
  jit::Graph& graph = *program.graph;
  if (!within) within = graph.insertConstant(IValue());
  jit::Value* const operation = bind_constant(program, IValue(packed(layer)));
  const auto kind = c10::Symbol::fromQualString("onnx_torch::recurrent");
  jit::Node* const node = graph.insertNode(graph.create(kind, {x, operation, states, within}));
  node->output()->setType(c10::ListType::ofTensors());
  node->setSourceRange(graph.insertPoint()->sourceRange());
  const size_t count = layer.cell == Recurrent::Cell::Lstm ? 2 : 1;
  return graph.insertNode(graph.createListUnpack(node->output(), 1 + count))->outputs();
}

jit::Value* list_of(jit::Graph& graph, at::ArrayRef<jit::Value*> tensors) {
  return graph.insertNode(graph.createList(c10::TensorType::get(), tensors))->output();
}

void pack_recurrent_layers(Program& program) {
  register_onednn();
  LayerPacking(program).run();
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
