// Attention, FlexAttention, RotaryEmbedding, LinearAttention.
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// Gives the type that softmax is computed in.
ElementType softmax_type(const NodeView& n, ElementType otherwise) {
  return n.has_attribute("softmax_precision") ? n.attr_element("softmax_precision") : otherwise;
}

// Translates Attention. ATen's scaled_dot_product_attention covers the plain cases. It keeps float between its steps
// where the type is a half type; of float16 (precise to 1e-3) ONNX expects the rounding of each step, unless
// softmax_precision is float.
Values attention(Translator& t, const NodeView& n) {
  const ElementType type = n.element(0), softmax = softmax_type(n, type);
  const bool in_float = softmax == ElementType::Float && type != ElementType::Double;
  const bool precise = in_float || (softmax == type && type != ElementType::Float16);
  const bool fused = precise && n.attr_float("softcap") == 0 && !n.wants(3);
  const auto window = [&](const char* name) -> std::optional<int64_t> {  // -1: there is none
    const int64_t size = n.has_attribute(name) ? n.attr_int(name) : -1;
    if (size < -1) n.fail(std::string(name) + " must be -1 or more");
    if (size < 0) return {};
    return size;
  };
  if (n.has(4) != n.has(5)) n.fail("past_key and past_value come together");
  if (n.has(6) && n.has(4)) n.fail("nonpad_kv_seqlen and past_key exclude each other");
  // The numbers of heads are for inputs of rank 3.
  const auto sizes = t.known_sizes(n.tensor(0));
  const auto heads = [&](const char* name) -> std::optional<int64_t> {
    if (!n.has_attribute(name) || (sizes && sizes->size() == 4)) return {};
    return n.attr_int(name);
  };
  if (sizes && sizes->size() == 3 && !(n.has_attribute("q_num_heads") && n.has_attribute("kv_num_heads"))) {
    n.fail("inputs of rank 3 need q_num_heads and kv_num_heads");
  }
  std::optional<ElementType> value_type;  // the type that the values are brought to
  if (n.element(2) != type) value_type = type;
  return script("attention", {
                                 kw("q_num_heads", heads("q_num_heads")),
                                 kw("kv_num_heads", heads("kv_num_heads")),
                                 kw("left_window_size", window("left_window_size")),
                                 kw("right_window_size", window("right_window_size")),
                                 kw("softmax_dtype", softmax),
                                 kw("value_dtype", value_type),
                                 kw("fused", fused),
                             })(t, n);
}

// Applies a modifier of FlexAttention, where the node has one.
Value modified(Translator& t, const NodeView& n, const char* modifier, const Value& x) {
  if (!n.has_attribute(modifier)) return x;
  const Values results = t.subgraph(n.attr_graph(modifier), {x});
  if (results.size() != 1) n.fail(std::string(modifier) + " must have one output");
  return results[0];
}

Values flex_attention(Translator& t, const NodeView& n) {
  const Value q = n.tensor(0), k = n.tensor(1), v = t.call("fitting_values", {q, k, n.tensor(2)}).as(n.input(2).type);
  const Arg scale = n.has_attribute("scale") ? Arg(n.attr_float("scale")) : Arg(none);
  if (!n.has_attribute("score_mod") && !n.has_attribute("prob_mod") && !n.has_attribute("softmax_precision")) {
    return {t.call("aten::scaled_dot_product_attention",
                   {q, k, v, none, 0.0, false, kw("scale", scale), kw("enable_gqa", true)})};
  }
  const bool is_double = n.element(0) == ElementType::Double;
  const ElementType type = softmax_type(n, is_double ? ElementType::Double : ElementType::Float);
  const Value scores = t.call("flex_scores", {q, k, scale, type}).as(type);
  const Value probs = t.call("aten::softmax", {modified(t, n, "score_mod", scores), -1}).as(type);
  return {t.call("flex_output", {modified(t, n, "prob_mod", probs), q, v})};
}

// Translates LinearAttention. The schema does not say what type present_state has without past_state.
Values linear_attention(Translator& t, const NodeView& n) {
  Values outputs = script("linear_attention")(t, n);
  outputs[1] = outputs[1].as(n.has(3) ? n.element(3) : n.element(0));
  return outputs;
}

}  // namespace

void register_attention_ops(Registry& r) {
  r.op("Attention").since(23, attention).reviewed_to(25);  // 24 has nonpad_kv_seqlen, 25 windows
  r.op("RotaryEmbedding").since(23, script("rotary_embedding")).reviewed_to(23);
  r.op("LinearAttention").since(27, linear_attention).reviewed_to(27);
  r.op("ai.onnx.preview", "FlexAttention").since(1, flex_attention).reviewed_to(1);
}

}  // namespace onnxtorch
