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
      kw("do_rotary", is_one(n, "do_rotary")),
      kw("rotary_embedding_dim", n.has_attribute("rotary_embedding_dim") ? n.attr_int("rotary_embedding_dim") : 0),
      kw("past_present_share_buffer", is_one(n, "past_present_share_buffer")),
      kw("mask_filter_value", n.has_attribute("mask_filter_value") ? n.attr_float("mask_filter_value") : -10000.0),
      kw("scale", scale_of(n)),
  };
}

Values fused_attention(Translator& t, const NodeView& n) {
  return script("fused_attention", attention_settings(n))(t, n);
}

}  // namespace

void register_contrib_attention_ops(Registry& r) { r.op(kMicrosoft, "Attention").since(1, fused_attention); }

}  // namespace onnxtorch
