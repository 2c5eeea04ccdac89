// RNN, GRU, LSTM, DynamicQuantizeLSTM. A layer with nothing unusual is ATen's; the others go step by step
// (scripts/recurrent.py).
#include "ops/recurrent.h"

#include <algorithm>
#include <cctype>

#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// The properties that tell the three operators apart.
struct Cell {
  std::string script;                    // one direction, step by step
  std::vector<int64_t> aten_order;       // the gates as ATen orders them
  std::vector<std::string> activations;  // the defaults
  size_t states;                         // h, and c
  // Further inputs of which the script takes the direction's part: they are of weights that ATen's layers do not have.
  std::vector<std::pair<const char*, size_t>> parameters;
};

const Cell kRnn{"rnn_direction", {0}, {"tanh"}, 1, {}};
const Cell kGru{"gru_direction", {1, 0, 2}, {"sigmoid", "tanh"}, 1, {}};
const Cell kLstm{"lstm_direction", {0, 2, 3, 1}, {"sigmoid", "tanh", "tanh"}, 2, {}};
const Cell kDynamicQuantizeLstm{"dynamic_quantize_lstm_direction",
                                kLstm.aten_order,
                                kLstm.activations,
                                kLstm.states,
                                {{"W_scale", 8}, {"W_zero_point", 9}, {"R_scale", 10}, {"R_zero_point", 11}}};

// The inputs; the schema's names are the same for the three.
enum : size_t { X, W, R, B, SequenceLens, InitialH, InitialC, P };

// --- Activations ---

// An activation with the defaults of its parameters. Names are compared without regard to case. An activation consumes
// values of activation_alpha and activation_beta only if it has such a parameter.
struct ActivationInfo {
  std::string name;
  std::optional<double> alpha, beta;
};

const std::vector<ActivationInfo> kActivations{
    {"relu", {}, {}},         {"tanh", {}, {}},          {"sigmoid", {}, {}},
    {"softsign", {}, {}},     {"softplus", {}, {}},      {"affine", 1.0, 0.0},
    {"elu", 1.0, {}},         {"leakyrelu", 0.01, {}},   {"thresholdedrelu", 1.0, {}},
    {"scaledtanh", 1.0, 1.0}, {"hardsigmoid", 0.2, 0.5},
};

// Takes the next value of a list, where the activation has that parameter.
double consume(const std::optional<double>& default_value, const std::vector<double>& given, size_t& next) {
  if (!default_value) return 0;
  return next < given.size() ? given[next++] : *default_value;
}

// --- Layers ---

struct Layer {
  Value x;        // [seq_length, batch_size, input_size]
  Values states;  // initial: h, and c; [num_directions, batch_size, hidden_size]
  size_t directions;
  bool reverse;  // whether the one direction is "reverse"
  Activations activations;
};

Layer layer_of(Translator& t, const NodeView& n, const Cell& cell) {
  const bool batch_first = n.attr_flag("layout");
  const auto time_first = [&](const Value& v) { return batch_first ? t.call("aten::transpose", {v, 0, 1}) : v; };

  const size_t directions = directions_of(n);
  const Value x = time_first(n.tensor(X));
  const Arg hidden_size = n.has_attribute("hidden_size") ? Arg(n.attr_int("hidden_size")) : Arg(none);
  Layer layer{
      .x = t.call("checked_input",
                  {x, n.tensor(W), n.tensor(R), n.tensor(B), n.tensor(P), static_cast<int64_t>(directions),
                   static_cast<int64_t>(cell.aten_order.size()), hidden_size}),
      .states = {},
      .directions = directions,
      .reverse = n.attr_string("direction") == "reverse",
      .activations = activations_of(n, cell.activations, directions),
  };
  for (const size_t i : {InitialH, InitialC}) {
    if (layer.states.size() == cell.states) break;
    layer.states.push_back(n.has(i) ? t.call("checked_state", {time_first(n.tensor(i)), layer.x, n.tensor(R)})
                                    : t.call("initial_state", {layer.x, n.tensor(R)}));
  }
  return layer;
}

// Gives ATen's layer of the same meaning; empty where there is none.
std::string aten_layer(const NodeView& n, const Cell& cell, const Layer& layer) {
  if (!cell.parameters.empty() || n.has(SequenceLens) || n.has(P) || n.has_attribute("clip") ||
      n.attr_flag("input_forget"))
    return {};
  const std::vector<std::string>& names = layer.activations.names;
  const auto all = [&](const std::vector<std::string>& expected) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] != expected[i % expected.size()]) return false;
    }
    return true;
  };
  if (&cell == &kRnn && all({"relu"})) return "aten::rnn_relu";
  if (!all(cell.activations)) return {};
  if (&cell == &kRnn) return "aten::rnn_tanh";
  if (&cell == &kLstm) return "aten::lstm";
  return n.attr_flag("linear_before_reset") ? "aten::gru" : "";
}

// Gives the gates from index `first` on, in ATen's order. x is [num_directions, count * hidden_size, …].
Value gates_for_aten(Translator& t, const Cell& cell, const Value& x, size_t count, size_t first) {
  const Value gates = t.call("aten::unflatten", {x, 1, std::vector<int64_t>{static_cast<int64_t>(count), -1}});
  Values ordered;
  for (const int64_t gate : cell.aten_order) {
    ordered.push_back(t.call("aten::select", {gates, 1, static_cast<int64_t>(first) + gate}));
  }
  return t.call("aten::cat", {ordered, 1});
}

Values run_aten(Translator& t, const NodeView& n, const Cell& cell, const Layer& layer, const std::string& function) {
  const size_t gates = cell.aten_order.size();
  Values weights{gates_for_aten(t, cell, n.tensor(W), gates, 0), gates_for_aten(t, cell, n.tensor(R), gates, 0)};
  if (n.has(B)) {
    weights.push_back(gates_for_aten(t, cell, n.tensor(B), 2 * gates, 0));
    weights.push_back(gates_for_aten(t, cell, n.tensor(B), 2 * gates, gates));
  }
  Values parameters;
  for (size_t d = 0; d < layer.directions; ++d) {
    for (const Value& w : weights) parameters.push_back(t.call("aten::select", {w, 0, static_cast<int64_t>(d)}));
  }
  const Arg states = cell.states == 1 ? Arg(layer.states[0]) : Arg(layer.states);
  const bool bidirectional = layer.directions == 2;
  Values results = t.call_all(
      function, {in_order(t, layer.x, layer.reverse), states, parameters, n.has(B), /*num_layers=*/1, /*dropout=*/0.0,
                 /*train=*/false, bidirectional, /*batch_first=*/false});
  // ATen's output has the directions behind one another in its last dimension.
  const Value directions =
      t.call("aten::unflatten", {results[0], -1, std::vector<int64_t>{static_cast<int64_t>(layer.directions), -1}});
  results[0] = t.call("aten::transpose", {in_order(t, directions, layer.reverse), 1, 2});
  return results;
}

Values run_steps(Translator& t, const NodeView& n, const Cell& cell, const Layer& layer) {
  const Value within = n.has(SequenceLens) ? t.call("within_sequences", {layer.x, n.tensor(SequenceLens)}) : Value();
  std::vector<Values> results(1 + cell.states);  // the directions of each output
  for (size_t d = 0; d < layer.directions; ++d) {
    const auto part = [&](const Value& v) {
      return v.absent() ? v : t.call("aten::select", {v, 0, static_cast<int64_t>(d)});
    };
    const bool reverse = layer.reverse || d == 1;
    const Activations own = layer.activations.slice(d * cell.activations.size(), cell.activations.size());
    std::vector<Arg> args{
        kw("X", in_order(t, layer.x, reverse)),
        kw("W", part(n.tensor(W))),
        kw("R", part(n.tensor(R))),
        kw("B", part(n.tensor(B))),
        kw("within", in_order(t, within, reverse)),
        kw("initial_h", part(layer.states[0])),
        kw("activations", own.names),
        kw("alphas", own.alphas),
        kw("betas", own.betas),
        kw("clip", n.has_attribute("clip") ? Arg(n.attr_float("clip")) : Arg(none)),
    };
    if (&cell == &kGru) args.push_back(kw("linear_before_reset", n.attr_flag("linear_before_reset")));
    for (const auto& [name, i] : cell.parameters) args.push_back(kw(name, part(n.tensor(i))));
    if (cell.states == 2) {
      args.push_back(kw("initial_c", part(layer.states[1])));
      args.push_back(kw("P", part(n.tensor(P))));
      args.push_back(kw("input_forget", n.attr_flag("input_forget")));
    }
    Values outputs = t.call_all(cell.script, args);
    outputs[0] = in_order(t, outputs[0], reverse);
    for (size_t i = 0; i < results.size(); ++i) results[i].push_back(outputs[i]);
  }
  Values joined;
  for (size_t i = 0; i < results.size(); ++i) joined.push_back(t.call("aten::stack", {results[i], i == 0 ? 1 : 0}));
  return joined;
}

TranslateFunction recurrent(const Cell& cell) {
  return [&cell](Translator& t, const NodeView& n) {
    const Layer layer = layer_of(t, n, cell);
    const std::string function = aten_layer(n, cell, layer);
    Values outputs = function.empty() ? run_steps(t, n, cell, layer) : run_aten(t, n, cell, layer, function);
    if (n.attr_flag("layout")) {
      outputs[0] = t.call("aten::permute", {outputs[0], std::vector<int64_t>{2, 0, 1, 3}});
      for (size_t i = 1; i < outputs.size(); ++i) outputs[i] = t.call("aten::transpose", {outputs[i], 0, 1});
    }
    return outputs;
  };
}

}  // namespace

Activations Activations::slice(size_t from, size_t count) const {
  const auto cut = [&](const auto& list) {
    return std::decay_t<decltype(list)>(list.begin() + from, list.begin() + from + count);
  };
  return {cut(names), cut(alphas), cut(betas)};
}

Activations activations_of(const NodeView& n, const std::vector<std::string>& defaults, size_t directions) {
  std::vector<std::string> names;
  if (n.has_attribute("activations")) names = n.attr_strings("activations");
  if (names.empty()) {
    for (size_t d = 0; d < directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  }
  const size_t count = directions * defaults.size();
  if (names.size() < count) n.fail("it needs " + std::to_string(count) + " activations");

  const auto floats = [&](const char* name) {
    return n.has_attribute(name) ? n.attr_floats(name) : std::vector<double>{};
  };
  const std::vector<double> alphas = floats("activation_alpha"), betas = floats("activation_beta");
  size_t next_alpha = 0, next_beta = 0;
  Activations result;
  for (size_t i = 0; i < count; ++i) {
    std::string name = names[i];
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const auto activation = std::ranges::find(kActivations, name, &ActivationInfo::name);
    if (activation == kActivations.end()) n.fail("there is no activation \"" + names[i] + "\"");
    result.names.push_back(name);
    result.alphas.push_back(consume(activation->alpha, alphas, next_alpha));
    result.betas.push_back(consume(activation->beta, betas, next_beta));
  }
  return result;
}

size_t directions_of(const NodeView& n) {
  const std::string direction = n.attr_string("direction");
  // The default of the first versions is "foward".
  if (direction != "forward" && direction != "foward" && direction != "reverse" && direction != "bidirectional") {
    n.fail("there is no direction \"" + direction + "\"");
  }
  return direction == "bidirectional" ? 2 : 1;
}

Value in_order(Translator& t, const Value& over_time, bool reverse) {
  return reverse && !over_time.absent() ? t.call("aten::flip", {over_time, std::vector<int64_t>{0}}) : over_time;
}

// Translates DynamicQuantizeLSTM, whose weights have the gates along their last dimension.
Values dynamic_quantize_lstm(Translator& t, const NodeView& n) {
  Values inputs = n.inputs();
  for (const size_t i : {W, R}) inputs[i] = t.call("aten::transpose", {n.tensor(i), 1, 2}).as(n.input(i).type);
  return recurrent(kDynamicQuantizeLstm)(t, NodeView(t, n.proto(), n.schema(), n.label(), inputs));
}

void register_recurrent_ops(Registry& r) {
  r.op("RNN").since(1, recurrent(kRnn)).reviewed_to(22);    // 14 has layout
  r.op("GRU").since(1, recurrent(kGru)).reviewed_to(22);    // 3 has linear_before_reset, 14 layout
  r.op("LSTM").since(1, recurrent(kLstm)).reviewed_to(22);  // 14 has layout
}

}  // namespace onnxtorch
