#include <ATen/ATen.h>
#include <ATen/code_template.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <map>

#include "graph/constants.h"
#include "graph/pattern.h"
#include "graph/writes.h"
#include "passes/cpu/packed/recurrent_layers.h"
#include "passes/cpu/passes.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// A product with a constant weight: the names of its rows' parts in a pattern, those of its bias, and its gates.
struct Product {
  std::vector<const char*> weight, bias;
  int64_t gates;
};

// A direction of a layer as src/ops/scripts/recurrent.py writes it: what a pattern has before the loop and in it.
struct Steps {
  Recurrent::Cell cell;
  std::vector<Product> products;
  std::vector<int64_t> order;            // of the gates, as the packed layer takes them; none: as they are
  std::map<std::string, int64_t> sizes;  // numbers of the pattern, as multiples of the hidden size
  std::vector<const char*> peepholes;    // of an LSTM, in the packed layer's order
  std::string before;
  std::vector<std::string> step;  // gives %new_h, and %new_c

  bool has_c() const { return cell == Recurrent::Cell::Lstm; }
};

constexpr const char* kGates = "%gates : Tensor = aten::linear(%x, %w, %b)";

constexpr const char* kSum = R"IR(%input : Tensor = aten::select(%gates, %zero, %step)
%from_h : Tensor = aten::linear(%h, %r, %b_r)
%sum : Tensor = aten::add(%input, %from_h, %one))IR";

Steps rnn_steps(Recurrent::Cell cell, const std::string& activation) {
  return {.cell = cell,
          .products = {{{"w"}, {"b"}, 1}, {{"r"}, {"b_r"}, 1}},
          .order = {},
          .sizes = {},
          .peepholes = {},
          .before = kGates,
          .step = {kSum, "%new_h : Tensor = " + activation + "(%sum)"}};
}

Steps lstm_steps(bool has_peepholes) {
  // A gate that may see the cell state.
  const auto gate = [&](const std::string& name, const std::string& c) {
    const std::string sum = "%seen_" + name + " : Tensor = aten::mul(%p_" + name + ", %" + c + ")\n%sum_" + name +
                            " : Tensor = aten::add(%" + name + ", %seen_" + name + ", %one)\n";
    return has_peepholes ? sum + "%at_" + name + " : Tensor = aten::sigmoid(%sum_" + name + ")"
                         : "%at_" + name + " : Tensor = aten::sigmoid(%" + name + ")";
  };
  return {.cell = Recurrent::Cell::Lstm,
          .products = {{{"w"}, {"b"}, 4}, {{"r"}, {"b_r"}, 4}},
          .order = {0, 2, 3, 1},
          .sizes = {},
          .peepholes = has_peepholes ? std::vector{"p_i", "p_f", "p_o"} : std::vector<const char*>(),
          .before = kGates,
          .step = {kSum, R"IR(%all_gates : Tensor[] = aten::chunk(%sum, %four, %one)
%i : Tensor, %o : Tensor, %f : Tensor, %g : Tensor = prim::ListUnpack(%all_gates))IR",
                   gate("i", "c"), gate("f", "c"), R"IR(%fresh : Tensor = aten::tanh(%g)
%old : Tensor = aten::mul(%at_f, %c)
%new : Tensor = aten::mul(%at_i, %fresh)
%new_c : Tensor = aten::add(%old, %new, %one))IR",
                   gate("o", "new_c"), R"IR(%of_c : Tensor = aten::tanh(%new_c)
%new_h : Tensor = aten::mul(%at_o, %of_c))IR"}};
}

Steps gru_steps(bool linear_before_reset) {
  constexpr const char* kGruGates = R"IR(%gates : Tensor = aten::linear(%x, %w, %b)
%gates_zr : Tensor = aten::narrow(%gates, %two, %zero, %two_hidden)
%gates_h : Tensor = aten::narrow(%gates, %two, %two_hidden, %hidden))IR";
  constexpr const char* kUpdateAndReset = R"IR(%input_zr : Tensor = aten::select(%gates_zr, %zero, %step)
%hidden_zr : Tensor = aten::linear(%h, %r_zr, %b_zr)
%sum_zr : Tensor = aten::add(%input_zr, %hidden_zr, %one)
%zr : Tensor = aten::sigmoid(%sum_zr)
%both : Tensor[] = aten::chunk(%zr, %two, %one)
%z : Tensor, %r : Tensor = prim::ListUnpack(%both))IR";
  constexpr const char* kOfResetState = R"IR(%kept : Tensor = aten::mul(%r, %h)
%hidden_h : Tensor = aten::linear(%kept, %r_h, %b_h))IR";
  constexpr const char* kLinearBeforeReset = R"IR(%from_h : Tensor = aten::linear(%h, %r_h, %b_h)
%hidden_h : Tensor = aten::mul(%r, %from_h))IR";
  constexpr const char* kUpdate = R"IR(%input_h : Tensor = aten::select(%gates_h, %zero, %step)
%sum_h : Tensor = aten::add(%input_h, %hidden_h, %one)
%fresh : Tensor = aten::tanh(%sum_h)
%minus_z : Tensor = aten::neg(%z)
%rest : Tensor = aten::add(%minus_z, %one, %one)
%new : Tensor = aten::mul(%rest, %fresh)
%old : Tensor = aten::mul(%z, %h)
%new_h : Tensor = aten::add(%new, %old, %one))IR";
  Steps steps{.cell = Recurrent::Cell::GruOfResetState,
              .products = {{{"w"}, {"b"}, 3}, {{"r_zr"}, {"b_zr"}, 2}, {{"r_h"}, {"b_h"}, 1}},
              .order = {},
              .sizes = {{"two_hidden", 2}, {"hidden", 1}},
              .peepholes = {},
              .before = kGruGates,
              .step = {kUpdateAndReset, linear_before_reset ? kLinearBeforeReset : kOfResetState, kUpdate}};
  if (linear_before_reset) {
    steps.cell = Recurrent::Cell::Gru;
    steps.products = {{{"w"}, {"b"}, 3}, {{"r_zr", "r_h"}, {"b_zr", "b_h"}, 3}};
    steps.order = {1, 0, 2};
  }
  return steps;
}

// With or without ends of the sequences.
std::string pattern_of(const Steps& steps, bool has_ends) {
  static const at::jit::CodeTemplate text(R"IR(
graph(%x, %w, %b, %r, %b_r, %r_zr, %b_zr, %r_h, %b_h, %p_i, %p_o, %p_f, %initial_h, %initial_c, %time, %two_hidden,
      %hidden, %within):
  %none : NoneType = prim::Constant()
  %true : bool = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %four : int = prim::Constant[value=4]()
  $before
  %states : Tensor[] = prim::ListConstruct(%initial_h)
  $last = prim::Loop(%time, %true, $initial)
    block0(%step : int, $states):
      $step
      %appended : Tensor[] = aten::append(%states, %${next}h)
      -> (%true, $next_states)
  %stacked : Tensor = aten::stack(%states, %zero)
  $y
  %results : (Tensor, $types) = prim::TupleConstruct(%y, $last_states)
  return (%results))IR");
  // Of h, and c.
  const auto states = [&](const std::string& before, const std::string& after) {
    const std::string h = before + "h" + after;
    return steps.has_c() ? h + ", " + before + "c" + after : h;
  };
  at::jit::TemplateEnv parts;
  parts.s("before", steps.before);
  parts.s("last", states("%last_", " : Tensor"));
  parts.s("initial", states("%initial_", ""));
  parts.s("states", states("%", " : Tensor"));
  parts.s("next", has_ends ? "next_" : "new_");
  parts.s("next_states", states(has_ends ? "%next_" : "%new_", ""));
  parts.s("types", steps.has_c() ? "Tensor, Tensor" : "Tensor");
  parts.s("last_states", states("%last_", ""));
  std::vector<std::string> step = steps.step;
  if (has_ends) {
    step.emplace_back(R"IR(%within_h : Tensor = aten::select(%within, %zero, %step)
%next_h : Tensor = aten::where(%within_h, %new_h, %h))IR");
    if (steps.has_c())
      step.emplace_back(R"IR(%within_c : Tensor = aten::select(%within, %zero, %step)
%next_c : Tensor = aten::where(%within_c, %new_c, %c))IR");
  }
  parts.v("step", step);
  parts.s("y", has_ends ? R"IR(%all : Tensor = aten::slice(%stacked, %zero, %one, %none, %one)
%y : Tensor = aten::where(%within, %all, %zero))IR"
                        : "%y : Tensor = aten::slice(%stacked, %zero, %one, %none, %one)");
  return text.format(parts);
}

struct Written {
  Steps steps;
  bool has_ends;
  std::string pattern;
};

const std::vector<Written>& all_written() {
  static const std::vector<Written> all = [] {
    std::vector<Written> made;
    for (const Steps& steps : {rnn_steps(Recurrent::Cell::Tanh, "aten::tanh"),
                               rnn_steps(Recurrent::Cell::Relu, "aten::relu"), lstm_steps(/*has_peepholes=*/false),
                               lstm_steps(true), gru_steps(/*linear_before_reset=*/false), gru_steps(true)}) {
      for (const bool has_ends : {false, true}) made.push_back({steps, has_ends, pattern_of(steps, has_ends)});
    }
    return made;
  }();
  return all;
}

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

// Constants one below the other, where they are known; undefined where they are absent.
std::optional<at::Tensor> joined(const std::vector<const char*>& names, const Found& found) {
  std::vector<at::Tensor> parts;
  for (const char* name : names) {
    const auto known = found.constants.tensor(found[name]);
    if (!known) return {};
    if (!known->defined()) return at::Tensor();
    parts.push_back(*known);
    if (known->dim() == 0 || known->sizes().slice(1) != parts[0].sizes().slice(1)) return {};
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

// The rows of each gate, in another order.
at::Tensor in_order(const at::Tensor& rows, const std::vector<int64_t>& order) {
  if (order.empty()) return rows;
  const std::vector<at::Tensor> gates = rows.chunk(std::ssize(order));
  std::vector<at::Tensor> ordered;
  for (const int64_t gate : order) ordered.push_back(gates[gate]);
  return at::cat(ordered);
}

std::optional<Recurrent> layer_of(const Steps& steps, const Found& found) {
  const auto is_float = [](const at::Tensor& t, at::IntArrayRef sizes) {
    return t.scalar_type() == c10::kFloat && t.numel() > 0 && t.sizes() == sizes;
  };
  const auto last = joined(steps.products.back().weight, found);
  if (!last || !last->defined() || last->dim() != 2) return {};
  const int64_t hidden = last->size(1);
  std::vector<at::Tensor> weights, biases;
  for (const Product& product : steps.products) {
    const auto weight = joined(product.weight, found), bias = joined(product.bias, found);
    if (!weight || !bias || !weight->defined() || weight->dim() != 2) return {};
    const int64_t columns = weights.empty() ? weight->size(1) : hidden;
    if (!is_float(*weight, {product.gates * hidden, columns})) return {};
    if (bias->defined() && !is_float(*bias, {product.gates * hidden})) return {};
    weights.push_back(in_order(*weight, steps.order));
    if (bias->defined()) biases.push_back(in_order(*bias, steps.order));
  }
  if (!biases.empty() && biases.size() != weights.size()) return {};
  for (const auto& [name, times] : steps.sizes) {
    if (found.constants.get<int64_t>(found[name]) != times * hidden) return {};
  }
  std::vector<at::Tensor> peepholes;
  for (const char* name : steps.peepholes) {
    const auto peephole = found.constants.tensor(found[name]);
    if (!peephole || !peephole->defined() || !is_float(*peephole, {hidden})) return {};
    peepholes.push_back(*peephole);
  }
  weights.insert(weights.end(), biases.begin(), biases.end());
  return Recurrent{steps.cell, /*bidirectional=*/false, !biases.empty(), std::move(weights),
                   peepholes.empty() ? at::Tensor() : at::stack(peepholes)};
}

void pack_steps(Program& program, jit::Node* tuple, const Found& found, const Written& written) {
  const auto& [steps, has_ends, pattern] = written;
  const auto layer = layer_of(steps, found);
  jit::Value* const x = found["x"];
  if (!layer || !is_time_of(found["time"], x, found.constants)) return;
  jit::Graph& graph = *program.graph;
  const jit::WithInsertPoint at(tuple);
  jit::Value* const zero = graph.insertConstant(0);
  std::vector<jit::Value*> states;
  for (const char* state : {"initial_h", "initial_c"}) {
    if (states.empty() || steps.has_c()) states.push_back(graph.insert(c10::aten::unsqueeze, {found[state], zero}));
  }
  const auto results = insert_packed(program, *layer, x, list_of(graph, states), has_ends ? found["within"] : nullptr);
  tuple->replaceInput(0, results[0]);
  for (size_t i = 1; i < results.size(); ++i) {
    tuple->replaceInput(i, graph.insert(c10::aten::select, {results[i], zero, zero}));
  }
  // A loop that writes to a list is not taken for dead.
  std::vector<const char*> unused{"y", "stacked", "last_h"};
  if (has_ends) unused.insert(unused.begin() + 1, "all");
  for (const char* name : unused) {
    jit::Node* const node = found[name]->node();
    if (!node->hasUses()) node->destroy();
  }
}

}  // namespace

void find_recurrent_steps(Program& program) {
  register_onednn();
  for (const Written& written : all_written()) {
    for_each_place(program, written.pattern,
                   [&](jit::Node* tuple, const Found& found) { pack_steps(program, tuple, found, written); });
  }
  eliminate_dead_code(program.graph);
}

}  // namespace onnxtorch
