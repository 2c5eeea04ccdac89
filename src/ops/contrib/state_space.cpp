// The operators that carry a state in place of a past: linear attention, convolutions with a state, AttnLSTM.
#include "ops/contrib/contrib.h"
#include "ops/recurrent.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// Translates LinearAttention. The schema does not say what type present_state has without past_state.
Values linear_attention(Translator& t, const NodeView& n) {
  Values outputs = script("linear_attention_with_window")(t, n);
  outputs[1] = outputs[1].as(n.has(3) ? n.element(3) : n.element(0));
  return outputs;
}

Values gated_delta_net(Translator& t, const NodeView& n) {
  Values outputs = script("gated_delta_net")(t, n);
  for (const size_t i : {1, 2}) outputs[i] = outputs[i].as(ElementType::Float);
  return outputs;
}

// --- AttnLSTM ---

enum : size_t { X, W, R, B, SequenceLens, InitialH, InitialC, P, QW, MW, V, M, MemorySeqLens, AW };

// Gives an initial state; zeros where it is absent.
Value state_of(Translator& t, const NodeView& n, size_t i) {
  if (!n.has(i)) return t.call("initial_state", {n.tensor(X), n.tensor(R)});
  return t.call("checked_state", {n.tensor(i), n.tensor(X), n.tensor(R)});
}

// Translates AttnLSTM. W has as many features as X and the attention have together. Without a memory it is an LSTM.
Values attn_lstm(Translator& t, const NodeView& n) {
  for (const size_t i : {QW, MW, V}) {
    if (n.has(i) != n.has(M)) n.fail("QW, MW, V and M come together");
  }
  if (!n.has(M) && (n.has(AW) || n.has(MemorySeqLens))) n.fail("AW and memory_seq_lens come with a memory");
  const std::vector<std::string> defaults{"sigmoid", "tanh", "tanh"};
  const size_t directions = directions_of(n);
  const Activations activations = activations_of(n, defaults, directions);
  const Arg hidden_size = n.has_attribute("hidden_size") ? Arg(n.attr_int("hidden_size")) : Arg(none);
  const Value x = t.call("checked_layer", {n.tensor(X), n.tensor(W), n.tensor(R), n.tensor(B), n.tensor(P),
                                           static_cast<int64_t>(directions), hidden_size});
  const Value h = state_of(t, n, InitialH), c = state_of(t, n, InitialC);
  const Value within = n.has(SequenceLens) ? t.call("within_sequences", {x, n.tensor(SequenceLens)}) : Value();
  const Value is_open = n.has(MemorySeqLens) ? t.call("open_memory", {n.tensor(M), n.tensor(MemorySeqLens)}) : Value();
  std::vector<Values> results(3);  // the directions of each output
  for (size_t d = 0; d < directions; ++d) {
    const auto part = [&](const Value& v) {
      return v.absent() ? v : t.call("aten::select", {v, 0, static_cast<int64_t>(d)});
    };
    const auto input = [&](size_t i) { return part(n.tensor(i)); };
    const bool reverse = d == 1 || n.attr_string("direction") == "reverse";
    const Activations own = activations.slice(d * defaults.size(), defaults.size());
    const Arg clip = n.has_attribute("clip") ? Arg(n.attr_float("clip")) : Arg(none);
    Values outputs = t.call_all("attn_lstm_direction",
                                {in_order(t, x, reverse), input(W), input(R), input(B), in_order(t, within, reverse),
                                 part(h), part(c), input(P), input(QW), input(MW), input(V), n.tensor(M), is_open,
                                 input(AW), own.names, own.alphas, own.betas, clip, n.attr_flag("input_forget")});
    outputs[0] = in_order(t, outputs[0], reverse);
    for (size_t i = 0; i < 3; ++i) results[i].push_back(outputs[i]);
  }
  return {t.call("aten::stack", {results[0], 1}), t.call("aten::stack", {results[1], 0}),
          t.call("aten::stack", {results[2], 0})};
}

}  // namespace

void register_contrib_state_space_ops(Registry& r) {
  r.op(kMicrosoft, "AttnLSTM").since(1, attn_lstm);
  r.op(kMicrosoft, "CausalConvWithState").since(1, script("causal_conv_with_window"));
  r.op(kMicrosoft, "GatedDeltaNet").since(1, gated_delta_net);
  r.op(kMicrosoft, "LinearAttention").since(1, linear_attention);
  r.op(kMicrosoft, "LinearAttentionGate").since(1, script("linear_attention_gate"));
  r.op(kMicrosoft, "VarlenCausalConvWithState").since(1, script("varlen_causal_conv_with_state"));
}

}  // namespace onnxtorch
