#include "lower/onednn/recurrent_layers.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "lower/onednn/packed.h"
#include "passes/constants.h"
#include "passes/pattern.h"
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

// Inserts the packed operator of a layer; the states are a list of so many. Gives y and the last states.
at::ArrayRef<jit::Value*> insert_packed(Program& program, const Recurrent& layer, jit::Value* x, jit::Value* states,
                                        size_t count) {
  jit::Graph& graph = *program.graph;
  jit::Value* const operation = bind_constant(program, IValue(packed(layer)));
  const auto kind = c10::Symbol::fromQualString("onnx_torch::recurrent");
  jit::Node* const node = graph.insertNode(graph.create(kind, {x, operation, states}));
  node->output()->setType(c10::ListType::ofTensors());
  node->setSourceRange(graph.insertPoint()->sourceRange());
  return graph.insertNode(graph.createListUnpack(node->output(), 1 + count))->outputs();
}

jit::Value* list_of(jit::Graph& graph, jit::Value* tensor) {
  return graph.insertNode(graph.createList(c10::TensorType::get(), {tensor}))->output();
}

// --- ATen's layers ---

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
    if (layer.cell != Recurrent::Cell::Lstm) states = list_of(graph_, states);
    const auto results = insert_packed(program_, layer, node->namedInput("input"), states, node->outputs().size() - 1);
    for (size_t i = 0; i < results.size(); ++i) {
      results[i]->setType(node->output(i)->type());
      node->output(i)->replaceAllUsesWith(results[i]);
    }
  }

  Program& program_;
  jit::Graph& graph_;
  const Constants constants_;
};

// --- Steps that are written out ---

// One direction of a GRU that applies the reset gate to the hidden state: src/ops/scripts/recurrent.py.
constexpr const char* kGruSteps = R"IR(
graph(%x, %w, %b, %r_zr, %b_zr, %r_h, %b_h, %initial, %time, %two_hidden, %hidden):
  %none : NoneType = prim::Constant()
  %true : bool = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %gates : Tensor = aten::linear(%x, %w, %b)
  %gates_zr : Tensor = aten::narrow(%gates, %two, %zero, %two_hidden)
  %gates_h : Tensor = aten::narrow(%gates, %two, %two_hidden, %hidden)
  %states : Tensor[] = prim::ListConstruct(%initial)
  %last : Tensor = prim::Loop(%time, %true, %initial)
    block0(%step : int, %h : Tensor):
      %input_zr : Tensor = aten::select(%gates_zr, %zero, %step)
      %hidden_zr : Tensor = aten::linear(%h, %r_zr, %b_zr)
      %sum_zr : Tensor = aten::add(%input_zr, %hidden_zr, %one)
      %zr : Tensor = aten::sigmoid(%sum_zr)
      %both : Tensor[] = aten::chunk(%zr, %two, %one)
      %z : Tensor, %r : Tensor = prim::ListUnpack(%both)
      %kept : Tensor = aten::mul(%r, %h)
      %hidden_h : Tensor = aten::linear(%kept, %r_h, %b_h)
      %input_h : Tensor = aten::select(%gates_h, %zero, %step)
      %sum_h : Tensor = aten::add(%input_h, %hidden_h, %one)
      %fresh : Tensor = aten::tanh(%sum_h)
      %minus_z : Tensor = aten::neg(%z)
      %rest : Tensor = aten::add(%minus_z, %one, %one)
      %new : Tensor = aten::mul(%rest, %fresh)
      %old : Tensor = aten::mul(%z, %h)
      %next : Tensor = aten::add(%new, %old, %one)
      %appended : Tensor[] = aten::append(%states, %next)
      -> (%true, %next)
  %stacked : Tensor = aten::stack(%states, %zero)
  %y : Tensor = aten::slice(%stacked, %zero, %one, %none, %one)
  %results : (Tensor, Tensor) = prim::TupleConstruct(%y, %last)
  return (%results))IR";

// Whether a number is the first size of x.
bool is_time_of(const jit::Value* number, const jit::Value* x, const Constants& constants) {
  if (const auto known = constants.number(number)) {
    const auto sizes = x->type()->expectRef<c10::TensorType>().sizes();
    return sizes.size() == 3U && sizes[0] && static_cast<double>(*sizes[0]) == *known;
  }
  const jit::Node* const node = number->node();
  return node->matches("aten::size.int(Tensor self, int dim) -> int") && node->input(0) == x &&
         constants.number(node->input(1)) == 0;
}

std::optional<Recurrent> gru_of(const Found& found) {
  std::vector<at::Tensor> parameters;
  for (const char* name : {"w", "r_zr", "r_h", "b", "b_zr", "b_h"}) {
    const auto known = found.constants.tensor(found[name]);
    if (!known) return {};
    parameters.push_back(*known);
  }
  const at::Tensor &w = parameters[0], &r_h = parameters[2];
  if (!w.defined() || w.dim() != 2 || !r_h.defined() || r_h.dim() != 2 || r_h.numel() == 0) return {};
  const int64_t hidden = r_h.size(0);
  const std::array<std::vector<int64_t>, 6> sizes{
      {{3 * hidden, w.size(1)}, {2 * hidden, hidden}, {hidden, hidden}, {3 * hidden}, {2 * hidden}, {hidden}}};
  const bool has_biases = parameters[3].defined();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& t = parameters[i];
    if (t.defined() != (i < 3 || has_biases)) return {};
    if (t.defined() && (t.scalar_type() != c10::kFloat || t.numel() == 0 || t.sizes() != sizes[i])) return {};
  }
  if (found.constants.get<int64_t>(found["two_hidden"]) != 2 * hidden ||
      found.constants.get<int64_t>(found["hidden"]) != hidden)
    return {};
  if (!has_biases) parameters.resize(3);
  return Recurrent{Recurrent::Cell::GruOfResetState, /*bidirectional=*/false, has_biases, std::move(parameters)};
}

void pack_steps(Program& program, jit::Node* tuple, const Found& found) {
  const auto layer = gru_of(found);
  jit::Value *const x = found["x"], *const initial = found["initial"];
  if (!layer || !is_time_of(found["time"], x, found.constants)) return;
  jit::Graph& graph = *program.graph;
  const jit::WithInsertPoint at(tuple);
  jit::Value* const zero = graph.insertConstant(0);
  jit::Value* const states = list_of(graph, graph.insert(c10::aten::unsqueeze, {initial, zero}));
  const auto results = insert_packed(program, *layer, x, states, 1);
  tuple->replaceInput(0, results[0]);
  tuple->replaceInput(1, graph.insert(c10::aten::select, {results[1], zero, zero}));
  // A loop that writes to a list is not taken for dead.
  for (const char* name : {"y", "stacked", "last"}) {
    if (!found[name]->hasUses()) found[name]->node()->destroy();
  }
}

}  // namespace

void find_recurrent_steps(Program& program) {
  register_onednn();
  for_each_place(program, kGruSteps, [&](jit::Node* tuple, const Found& found) { pack_steps(program, tuple, found); });
  eliminate_dead_code(program.graph);
}

void pack_recurrent_layers(Program& program) {
  register_onednn();
  Packing(program).run();
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
