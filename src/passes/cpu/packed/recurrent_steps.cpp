#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "graph/constants.h"
#include "graph/walk.h"
#include "graph/writes.h"
#include "passes/cpu/packed/recurrent_layers.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using Cell = Recurrent::Cell;

// Gives the cell of a direction that src/ops/scripts/recurrent.py computes step by step, where it has the usual
// activations.
std::optional<Cell> cell_of(const jit::Node* node, const Constants& constants) {
  const std::string script = node->kind().toQualString();
  const bool is_rnn = script == "onnx_torch::rnn_direction", is_gru = script == "onnx_torch::gru_direction",
             is_lstm = script == "onnx_torch::lstm_direction";
  if ((!is_rnn && !is_gru && !is_lstm) || !node->namedInput("clip")->mustBeNone()) return {};
  const auto names = constants.get<std::vector<std::string>>(node->namedInput("activations"));
  const auto flag = [&](const char* name) { return constants.get<bool>(node->namedInput(name)); };
  if (is_rnn && names == std::vector<std::string>{"tanh"}) return Cell::Tanh;
  if (is_rnn && names == std::vector<std::string>{"relu"}) return Cell::Relu;
  if (is_gru && names == std::vector<std::string>{"sigmoid", "tanh"})
    return flag("linear_before_reset").value_or(false) ? Cell::Gru : Cell::GruOfResetState;
  if (is_lstm && names == std::vector<std::string>{"sigmoid", "tanh", "tanh"} && flag("input_forget") == false)
    return Cell::Lstm;
  return {};
}

// Gives ONNX's gates, in the order in which a packed layer takes them.
std::vector<int64_t> gates_of(Cell cell) {
  switch (cell) {
    case Cell::Lstm:
      return {0, 2, 3, 1};
    case Cell::Gru:
      return {1, 0, 2};
    case Cell::GruOfResetState:
      return {0, 1, 2};
    default:
      return {0};
  }
}

at::Tensor in_order(const at::Tensor& rows, const std::vector<int64_t>& order) {
  const std::vector<at::Tensor> gates = rows.chunk(std::ssize(order));
  std::vector<at::Tensor> ordered;
  for (const int64_t gate : order) ordered.push_back(gates[gate]);
  return at::cat(ordered);
}

// Gives the hidden state's weights as a packed layer takes them: GruOfResetState takes those of the hidden gate apart.
std::vector<at::Tensor> of_hidden(const at::Tensor& rows, Cell cell) {
  if (cell != Cell::GruOfResetState) return {rows};
  const int64_t hidden = rows.size(0) / 3;
  return {rows.slice(0, 0, 2 * hidden), rows.slice(0, 2 * hidden)};
}

std::optional<Recurrent> layer_of_steps(const jit::Node* node, const Constants& constants) {
  const auto cell = cell_of(node, constants);
  if (!cell) return {};
  const auto constant = [&](const char* name) { return constants.tensor(node->namedInput(name)); };
  const auto w = constant("W"), r = constant("R"), b = constant("B");
  const auto p = *cell == Cell::Lstm ? constant("P") : at::Tensor();
  if (!w || !r || !b || !p || !w->defined() || !r->defined() || w->dim() != 2 || r->dim() != 2) return {};
  const std::vector<int64_t> order = gates_of(*cell);
  const int64_t hidden = r->size(1), of_gates = std::ssize(order) * hidden;
  const auto is_float = [](const at::Tensor& t, at::IntArrayRef sizes) {
    return t.scalar_type() == c10::kFloat && t.numel() > 0 && t.sizes() == sizes;
  };
  const bool fits = is_float(*w, {of_gates, w->size(1)}) && is_float(*r, {of_gates, hidden}) &&
                    (!b->defined() || is_float(*b, {2 * of_gates})) && (!p->defined() || is_float(*p, {3 * hidden}));
  if (!fits) return {};

  Recurrent layer{*cell, /*bidirectional=*/false, b->defined(), {}};
  const auto take = [&](const at::Tensor& of_input, const at::Tensor& from_hidden) {
    layer.parameters.push_back(in_order(of_input, order));
    for (const at::Tensor& part : of_hidden(in_order(from_hidden, order), *cell)) layer.parameters.push_back(part);
  };
  take(*w, *r);
  if (b->defined()) take(b->slice(0, 0, of_gates), b->slice(0, of_gates));
  if (p->defined()) layer.peepholes = in_order(*p, {0, 2, 1}).view({3, hidden});
  return layer;
}

void pack_direction(Program& program, jit::Node* node, const Recurrent& layer) {
  jit::Graph& graph = *program.graph;
  const jit::WithInsertPoint at(node);
  jit::Value* const zero = graph.insertConstant(0);
  const auto state = [&](const char* name) {
    return graph.insert(c10::aten::unsqueeze, {node->namedInput(name), zero});
  };
  std::vector<jit::Value*> states{state("initial_h")};
  if (layer.cell == Cell::Lstm) states.push_back(state("initial_c"));
  jit::Value* const within = node->namedInput("within");
  const auto results = insert_packed(program, layer, node->namedInput("X"), list_of(graph, states),
                                     within->mustBeNone() ? nullptr : within);
  for (size_t i = 0; i < results.size(); ++i) {
    jit::Value* const result = i == 0 ? results[0] : graph.insert(c10::aten::select, {results[i], zero, zero});
    result->setType(node->output(i)->type());
    node->output(i)->replaceAllUsesWith(result);
  }
  node->destroy();
}

}  // namespace

void find_recurrent_steps(Program& program) {
  register_onednn();
  const Constants constants(program);
  for_each_node(program.graph->block(), [&](jit::Node* node) {
    if (const auto layer = layer_of_steps(node, constants)) pack_direction(program, node, *layer);
  });
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
