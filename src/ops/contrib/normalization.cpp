// Layer, RMS and group normalization with the sums before them and the gates behind them, and dropout with a bias.
#include "ops/normalization.h"

#include "ops/cast.h"
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

using enum ElementType;

// Makes the translator by a script that computes in float whatever the types of its inputs, and whose outputs have that
// of the first.
TranslateFunction in_float(const std::string& function) {
  return [translate = script(function)](Translator& t, const NodeView& n) {
    Values inputs = n.inputs();
    for (Value& input : inputs) {
      if (!input.absent()) input = cast(t, input, Float);
    }
    Values outputs = translate(t, NodeView(t, n.proto(), n.schema(), n.label(), inputs));
    for (Value& output : outputs) output = cast(t, output.as(Float), n.element(0));
    return outputs;
  };
}

Value sum(Translator& t, const Value& a, const Value& b) {
  return b.absent() ? a : t.call("aten::add", {a, b}).as(a.type);
}

// Translates SimplifiedLayerNormalization. stash_type is the type of the statistic alone. X may have another type than
// the rest.
Values simplified_layer_norm(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0), scale = n.tensor(1);
  const ElementType type = x.type.element, wide = type == Double ? Double : Float;
  const int64_t axis = n.attr_int("axis");
  const double epsilon = n.attr_float("epsilon");
  const Value y = rms_norm(t, x.type == scale.type ? x : cast(t, x, wide), scale, axis, epsilon);
  if (!n.wants(1)) return {y};
  const Value inverse = t.call("inverse_rms", {cast(t, x, wide), axis, epsilon}).as(wide);
  return {y, cast(t, inverse, n.attr_element("stash_type"))};
}

// --- The sum of an input, a skip connection and the bias of the layer before, and its normalization ---

// Adds the three. The bias comes first, as in a model whose nodes are not fused.
Value skip_sum(Translator& t, const NodeView& n, size_t bias) {
  return sum(t, sum(t, n.tensor(0), n.tensor(bias)), n.tensor(1));
}

Values skip_layer_norm(Translator& t, const NodeView& n) {
  const Value x = skip_sum(t, n, 4), gamma = n.tensor(2), beta = n.tensor(3);
  const double epsilon = n.attr_float("epsilon");
  if (!n.wants(1) && !n.wants(2)) return {layer_norm(t, x, gamma, beta, -1, epsilon), {}, {}, x};
  Values outputs = layer_norm_with_statistics(t, cast(t, x, Float), gamma, beta, -1, epsilon);
  outputs.push_back(x);
  return outputs;
}

// Translates SkipSimplifiedLayerNormalization. The mean is not subtracted, and given as zero.
Values skip_simplified_layer_norm(Translator& t, const NodeView& n) {
  const Value x = skip_sum(t, n, 3);
  const double epsilon = n.attr_float("epsilon");
  const Value y = rms_norm(t, x, n.tensor(2), -1, epsilon);
  if (!n.wants(1) && !n.wants(2)) return {y, {}, {}, x};
  const Value inverse = t.call("inverse_rms", {cast(t, x, Float), -1, epsilon});
  return {y, t.call("aten::zeros_like", {inverse}), inverse, x};
}

// --- Embeddings of words, positions and segments, their sum and its normalization ---

using PickRows = std::function<Value(size_t table, const Value& ids)>;  // gives rows of the table that is an input

// Normalizes the embeddings. embedding_sum holds all three, where its text says two. mask_index_type is for shape
// inference only.
Values embed_layer_norm(Translator& t, const NodeView& n, const PickRows& rows, const Value& position_ids,
                        const Value& gamma, const Value& beta) {
  const Value ids = n.tensor(0);
  if (n.has(1) && !n.has(4)) n.fail("segment_ids come without a segment_embedding");
  const Value positions = position_ids.absent() ? t.call("positions_of", {ids}) : position_ids;
  Value x = sum(t, rows(2, ids), rows(3, positions));
  // Without ids, every word is in the first segment.
  if (n.has(4)) x = sum(t, x, rows(4, n.has(1) ? n.tensor(1) : t.call("aten::zeros_like", {ids})));
  return {layer_norm(t, x, gamma, beta, -1, n.attr_float("epsilon")), t.call("mask_index", {ids, n.tensor(7)}), x};
}

Values embed_layer_normalization(Translator& t, const NodeView& n) {
  const PickRows rows = [&](size_t table, const Value& ids) {
    return t.call("gather", {n.tensor(table), 0, ids}).as(n.element(table));
  };
  return embed_layer_norm(t, n, rows, n.tensor(8), n.tensor(5), n.tensor(6));
}

// Translates QEmbedLayerNormalization. Each table and vector has 8 bits, a scale six inputs and a zero point eleven
// inputs behind it.
Values q_embed_layer_normalization(Translator& t, const NodeView& n) {
  const auto numbers = [&](const Value& quantized, size_t i) {
    return t.call("dequantized_by_one", {quantized, n.tensor(i + 6), n.tensor(i + 11)}).as(Float);
  };
  const PickRows rows = [&](size_t table, const Value& ids) {
    return numbers(t.call("gather", {n.tensor(table), 0, ids}), table);
  };
  return embed_layer_norm(t, n, rows, {}, numbers(n.tensor(5), 5), numbers(n.tensor(6), 6));
}

// Translates QOrderedLayerNormalization. Rows of the matrix follow one another (order 1); what cublasLt has besides is
// of its own.
Values q_ordered_layer_norm(Translator& t, const NodeView& n) {
  if (n.attr_int("order_X") != 1 || n.attr_int("order_Y") != 1) n.unsupported("with another order than that of rows");
  const Value x = t.call("aten::mul", {cast(t, n.tensor(0), Float), t.call("one_for_all", {n.tensor(1)})}).as(Float);
  const Value scale = cast(t, n.tensor(2), Float), b = n.has(3) ? cast(t, n.tensor(3), Float) : Value{};
  const Value y = layer_norm(t, x, scale, b, n.attr_int("axis"), n.attr_float("epsilon"));
  return {t.call("quantize_linear", {y, t.call("one_for_all", {n.tensor(4)}), none, -128, 127, Int8})};
}

// --- Dropout ---

// Translates BiasDropout: dropout of data with a bias; a residual is added to what is left.
Values bias_dropout(Translator& t, const NodeView& n) {
  Values outputs = dropout(t, n, sum(t, n.tensor(0), n.tensor(1)), 3);
  outputs[0] = sum(t, outputs[0], n.tensor(2));
  return outputs;
}

Values bitmask_dropout(Translator& t, const NodeView& n) { return dropout(t, n, n.tensor(0), 1); }

TranslateFunction with_bitmask(TranslateFunction translate) {
  return [translate = std::move(translate)](Translator& t, const NodeView& n) {
    const Values outputs = translate(t, n);
    return Values{outputs[0], t.call("packed_mask", {outputs[1]})};
  };
}

}  // namespace

void register_contrib_normalization_ops(Registry& r) {
  r.op("SimplifiedLayerNormalization").since(1, simplified_layer_norm);
  r.op(kMicrosoft, "BiasDropout").since(1, bias_dropout);
  r.op(kMicrosoft, "BitmaskBiasDropout").since(1, with_bitmask(bias_dropout));
  r.op(kMicrosoft, "BitmaskDropout").since(1, with_bitmask(bitmask_dropout));
  r.op(kMicrosoft, "BranchwiseRMSNorm").since(1, in_float("branchwise_rms_norm"));
  r.op(kMicrosoft, "EmbedLayerNormalization").since(1, embed_layer_normalization);
  r.op(kMicrosoft, "EngramGate").since(1, in_float("engram_gate"));
  r.op(kMicrosoft, "GatedRMSNorm").since(1, in_float("gated_rms_norm"));
  r.op(kMicrosoft, "GroupNorm").since(1, in_float("skip_group_norm"));
  r.op(kMicrosoft, "HyperConnectionPostMix").since(1, in_float("hyper_connection_post_mix"));
  r.op(kMicrosoft, "HyperConnectionPreMix").since(1, in_float("hyper_connection_pre_mix"));
  r.op(kMicrosoft, "QEmbedLayerNormalization").since(1, q_embed_layer_normalization);
  r.op(kMicrosoft, "QOrderedLayerNormalization").since(1, q_ordered_layer_norm);
  r.op(kMicrosoft, "SkipGroupNorm").since(1, in_float("skip_group_norm"));
  r.op(kMicrosoft, "SkipLayerNormalization").since(1, skip_layer_norm);
  r.op(kMicrosoft, "SkipSimplifiedLayerNormalization").since(1, skip_simplified_layer_norm);
}

}  // namespace onnxtorch
