// Attention and its packed, sparse and windowed forms, and the biases that go with them.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

bool is_one(const NodeView& n, std::string_view name) { return n.has_attribute(name) && n.attr_int(name) == 1; }

// 0 stands for the default, 1 / sqrt(head_size).
Arg scale_of(const NodeView& n) {
  const double scale = n.has_attribute("scale") ? n.attr_float("scale") : 0;
  return scale == 0 ? Arg(none) : Arg(scale);
}

// The attributes of which the schema leaves the default to the text.
std::vector<Arg> attention_settings(const NodeView& n) {
  return {
      kw("unidirectional", is_one(n, "unidirectional")),
      kw("past_present_share_buffer", is_one(n, "past_present_share_buffer")),
      kw("mask_filter_value", n.has_attribute("mask_filter_value") ? n.attr_float("mask_filter_value") : -10000.0),
      kw("scale", scale_of(n)),
  };
}

Values fused_attention(Translator& t, const NodeView& n) {
  std::vector<Arg> settings = attention_settings(n);
  settings.push_back(kw("do_rotary", is_one(n, "do_rotary")));
  const int64_t dim = n.has_attribute("rotary_embedding_dim") ? n.attr_int("rotary_embedding_dim") : 0;
  settings.push_back(kw("rotary_embedding_dim", dim));
  return script("fused_attention", settings)(t, n);
}

Values quantized_attention(Translator& t, const NodeView& n) {
  return script("quantized_attention", attention_settings(n))(t, n);
}

TranslateFunction with_scale(const std::string& function) {
  return [function](Translator& t, const NodeView& n) { return script(function, {kw("scale", scale_of(n))})(t, n); };
}

}  // namespace

void register_contrib_attention_ops(Registry& r) {
  r.op(kMicrosoft, "Attention").since(1, fused_attention);
  r.op(kMicrosoft, "GatedRelativePositionBias").since(1, script("gated_relative_position_bias"));
  r.op(kMicrosoft, "PackedAttention").since(1, with_scale("packed_attention"));
  r.op(kMicrosoft, "PackedMultiHeadAttention").since(1, with_scale("packed_multi_head_attention"));
  r.op(kMicrosoft, "QAttention").since(1, quantized_attention);
  r.op(kMicrosoft, "RelativePositionBias").since(1, script("relative_position_bias"));
  r.op(kMicrosoft, "RemovePadding").since(1, script("removed_padding"));
  r.op(kMicrosoft, "RestorePadding").since(1, script("restored_padding"));
}

}  // namespace onnxtorch
