// Attention and its packed, sparse and windowed forms, and the biases that go with them.
#include "ops/cast.h"
#include "ops/contrib/contrib.h"
#include "ops/quantization.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

bool is_one(const NodeView& n, std::string_view name) { return n.has_attribute(name) && n.attr_int(name) == 1; }

// Gives the attribute scale, of which 0 stands for the default, 1 / sqrt(head_size).
Arg scale_of(const NodeView& n) {
  const double scale = n.has_attribute("scale") ? n.attr_float("scale") : 0;
  return scale == 0 ? Arg(none) : Arg(scale);
}

// Gives the attributes of which the schema leaves the default to the text.
std::vector<Arg> attention_settings(const NodeView& n) {
  return {
      kw("unidirectional", is_one(n, "unidirectional")),
      kw("past_present_share_buffer", is_one(n, "past_present_share_buffer")),
      kw("mask_filter_value", n.has_attribute("mask_filter_value") ? n.attr_float("mask_filter_value") : -10000.0),
      kw("scale", scale_of(n)),
  };
}

// Translates attention among Q, K and V, which follow one another in the rows of `qkv`.
Values projected_attention(Translator& t, const NodeView& n, const Value& qkv, const std::vector<Arg>& more) {
  std::vector<Arg> args = attention_settings(n);
  args.push_back(kw("qkv", qkv));
  args.insert(args.end(), more.begin(), more.end());
  return script("projected_attention", args)(t, n);
}

Values attention(Translator& t, const NodeView& n) {
  const int64_t dim = n.has_attribute("rotary_embedding_dim") ? n.attr_int("rotary_embedding_dim") : 0;
  return projected_attention(t, n, t.call("projected", {n.tensor(0), n.tensor(1), n.tensor(2)}),
                             {kw("do_rotary", is_one(n, "do_rotary")), kw("rotary_embedding_dim", dim)});
}

// Translates QAttention. Its kernels pay no regard to do_rotary, and refuse a shared past, as there is no input that
// tells its length.
Values quantized_attention(Translator& t, const NodeView& n) {
  const ElementType type = n.element(2);
  const Value sums = integer_product(t, {n.tensor(0), zero_point(t, n, 6)}, {n.tensor(1), zero_point(t, n, 7)});
  const Value input_scale = t.call("one_for_all", {cast(t, n.tensor(3), ElementType::Float)});
  const Value unit = t.call("aten::mul", {input_scale, column_scale(t, n.tensor(4))});
  const Value product = t.call("aten::mul", {cast(t, sums, ElementType::Float), unit}).as(ElementType::Float);
  const Value qkv = t.call("aten::add", {cast(t, product, type), n.tensor(2)}).as(type);
  return projected_attention(t, n, qkv,
                             {kw("do_rotary", false), kw("rotary_embedding_dim", 0), kw("attention_bias", none),
                              kw("past_sequence_length", none), kw("qkv_hidden_sizes", none)});
}

TranslateFunction with_scale(const std::string& function) {
  return [function](Translator& t, const NodeView& n) { return script(function, {kw("scale", scale_of(n))})(t, n); };
}

// --- Windows ---

// Translates LongformerAttention. It goes by position, as an input is named "global", which is no name in a script.
Values longformer_attention(Translator& t, const NodeView& n) {
  std::vector<Arg> args;
  for (size_t i = 0; i < 7; ++i) args.emplace_back(n.tensor(i));
  args.insert(args.end(), {n.attr_int("num_heads"), n.attr_int("window")});
  return {t.call("longformer_attention", args)};
}

// --- Matrices in an order of cublasLt ---

enum Order : int64_t { kColumns = 0, kRows = 1 };

void require_rows(const NodeView& n, const char* order) {
  if (n.attr_int(order) != kRows) n.unsupported(std::string(order) + " is not that of rows (1)");
}

// Gives the matrix that is input i.
Value matrix(Translator& t, const NodeView& n, size_t i, const char* order) {
  switch (n.attr_int(order)) {
    case kColumns:
      return t.call("of_columns", {n.tensor(i)}).as(n.input(i).type);
    case kRows:
      return n.tensor(i);
    default:
      n.unsupported(std::string(order) + " is neither that of columns (0) nor that of rows (1)");
  }
}

Values quantized_longformer_attention(Translator& t, const NodeView& n) {
  require_rows(n, "order_input");
  require_rows(n, "order_output");
  const auto in = [&](size_t i) { return n.tensor(i); };
  return {
      t.call("quantized_longformer_attention", {in(0), in(1), matrix(t, n, 2, "order_weight"), in(3), in(4), in(6),
                                                in(7), matrix(t, n, 8, "order_global_weight"), in(9), in(10), in(11),
                                                in(12), in(13), n.attr_int("num_heads"), n.attr_int("window")})};
}

Values attention_of_steps(Translator& t, const NodeView& n) {
  require_rows(n, "order_input");
  require_rows(n, "order_output");
  return script("attention_of_steps", {
                                          kw("Q_weight", matrix(t, n, 5, "order_weight")),
                                          kw("K_weight", matrix(t, n, 6, "order_weight")),
                                          kw("V_weight", matrix(t, n, 7, "order_weight")),
                                          kw("unidirectional", is_one(n, "unidirectional")),
                                      })(t, n);
}

// --- Selected keys ---

Values dynamic_sparse_attention(Translator& t, const NodeView& n) {
  const std::string mode = n.attr_string("attention_mode"), source = n.attr_string("selected_kv_source");
  const bool of_cache = mode == "selected_only" && source == "main";
  const bool of_others = mode == "local_plus_selected" && source == "auxiliary";
  if (!of_cache && !of_others) n.fail("attention_mode " + mode + " does not go with selected_kv_source " + source);
  if (of_others && n.attr_int("local_window_size") <= 0) n.fail("local_plus_selected needs a local_window_size");
  if (n.attr_int("is_causal") != 1) n.fail("is_causal must be 1");
  return script("dynamic_sparse_attention", {kw("use_auxiliary", of_others), kw("scale", scale_of(n))})(t, n);
}

}  // namespace

void register_contrib_attention_ops(Registry& r) {
  r.op(kMicrosoft, "Attention").since(1, attention);
  r.op(kMicrosoft, "DynamicSparseAttention").since(1, dynamic_sparse_attention);
  r.op(kMicrosoft, "GatedRelativePositionBias").since(1, script("gated_relative_position_bias"));
  r.op(kMicrosoft, "LongformerAttention").since(1, longformer_attention);
  r.op(kMicrosoft, "PackedAttention").since(1, with_scale("packed_attention"));
  r.op(kMicrosoft, "PackedMultiHeadAttention").since(1, with_scale("packed_multi_head_attention"));
  r.op(kMicrosoft, "QAttention").since(1, quantized_attention);
  r.op(kMicrosoft, "QOrderedAttention").since(1, attention_of_steps);
  r.op(kMicrosoft, "QOrderedLongformerAttention").since(1, quantized_longformer_attention);
  r.op(kMicrosoft, "RelativePositionBias").since(1, script("relative_position_bias"));
  r.op(kMicrosoft, "RemovePadding").since(1, script("removed_padding"));
  r.op(kMicrosoft, "RestorePadding").since(1, script("restored_padding"));
}

}  // namespace onnxtorch
