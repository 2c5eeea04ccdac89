// Attention with a past: MultiHeadAttention, GroupQueryAttention, the decoders' forms; rotary embeddings.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

constexpr int64_t kMostTokens = 1 << 30;  // the most in a block, and that are selected

// Give attributes for which the schema has no default, and which the kernels take as 0.
int64_t int_or_zero(const NodeView& n, const char* name) { return n.has_attribute(name) ? n.attr_int(name) : 0; }
double float_or_zero(const NodeView& n, const char* name) { return n.has_attribute(name) ? n.attr_float(name) : 0; }
Arg number(const NodeView& n, const char* name) { return kw(name, int_or_zero(n, name)); }
Arg flag(const NodeView& n, const char* name) { return kw(name, int_or_zero(n, name) != 0); }

// Gives the attribute scale, of which 0 stands for the usual one, of 1 / sqrt(size).
std::optional<double> given_scale(const NodeView& n) {
  const double scale = float_or_zero(n, "scale");
  return scale == 0 ? std::nullopt : std::optional(scale);
}

Values rotary_embedding(Translator& t, const NodeView& n) {
  return script("rotary_embedding_of_positions",
                {number(n, "num_heads"), number(n, "rotary_embedding_dim"), flag(n, "interleaved")})(t, n);
}

Values group_query_attention(Translator& t, const NodeView& n) {
  const int64_t bits = int_or_zero(n, "kv_cache_bit_width"), qk_output = n.attr_int("qk_output");
  const bool is_smooth = n.attr_int("smooth_softmax") == 1, causal = n.attr_int("causal") != 0;
  const bool is_quantized = n.attr_string("k_quant_type") != "NONE";
  if (is_quantized != (n.attr_string("v_quant_type") != "NONE")) n.fail("keys and values are quantized alike");
  if (is_quantized && bits != 4 && bits != 8) n.fail("kv_cache_bit_width must be 4 or 8 of a quantized cache");
  if (n.has(3) != n.has(4)) n.fail("past_key and past_value come together");
  if (n.has(14) != n.has(15)) n.fail("q_norm_weight and k_norm_weight come together");
  if (n.attr_float("qk_norm_epsilon") < 0) n.fail("qk_norm_epsilon must not be negative");
  if (!causal && n.attr_int("local_window_size") != -1) n.fail("local_window_size must be -1 where causal is 0");
  if (n.wants(3) && qk_output != 1 && qk_output != 2) n.fail("qk_output must be 1 or 2 for the output output_qk");
  const bool fused = float_or_zero(n, "softcap") == 0 && !is_smooth && !n.has(11) && !n.wants(3);
  const ElementType made = is_quantized ? (bits == 4 ? ElementType::Uint8 : ElementType::Int8) : n.element(0);
  const ElementType cache = n.has(3) ? n.element(3) : made;
  if (!is_quantized && cache != n.element(0)) n.fail("a cache of another type than query has needs k_quant_type");
  if (is_quantized && (bits == 4) != (cache == ElementType::Uint8))
    n.fail("a cache of 4 bits, and only that, is of uint8");
  Values heads = t.call_all(
      "heads_of_group", {n.tensor(0), n.tensor(1), n.tensor(2), n.attr_int("num_heads"), n.attr_int("kv_num_heads")});
  for (const size_t norm : {0, 1}) {
    if (n.has(14)) {
      heads[norm] = t.call("rms_norm_of_heads", {heads[norm], n.tensor(14 + norm), n.attr_float("qk_norm_epsilon")});
    }
  }
  std::vector<Arg> args{
      kw("q", heads[0]),
      kw("k", heads[1]),
      kw("v", heads[2]),
      flag(n, "do_rotary"),
      flag(n, "rotary_interleaved"),
      kw("scale", given_scale(n)),
      kw("softcap", float_or_zero(n, "softcap")),
      kw("smooth_softmax", is_smooth),
  };
  const bool is_plain = !is_quantized && !n.has(10) && int_or_zero(n, "sliding_window_cache") == 0 && !n.wants(3);
  if (is_plain) {
    const char* const form = t.reads_back() ? "plain_group_query_attention" : "masked_group_query_attention";
    return script(form, std::move(args))(t, n);
  }
  args.push_back(kw("coding", bits == 4 ? "offset" : std::string(info(cache).name)));
  args.push_back(kw("cache_dtype", cache));
  args.push_back(kw("fused", fused));
  Values outputs = script("group_query_attention", std::move(args))(t, n);
  outputs[1] = outputs[1].as(cache);
  outputs[2] = outputs[2].as(cache);
  return outputs;
}

// Gives what is added to scores where a mask hides them.
double mask_filter_value(const NodeView& n) {
  return n.has_attribute("mask_filter_value") ? n.attr_float("mask_filter_value") : -10000;
}

// Translates attention of query, key and value in any of their forms.
Values multi_head_attention(Translator& t, const NodeView& n, std::vector<Arg> fixed) {
  const Values parts = t.call_all("unpacked", {n.tensor(0), n.tensor(1), n.tensor(2)});
  fixed.push_back(kw("q", parts[0]));
  fixed.push_back(kw("k", parts[1]));
  fixed.push_back(kw("v", parts[2]));
  fixed.push_back(kw("scale", given_scale(n)));
  fixed.push_back(kw("mask_filter_value", mask_filter_value(n)));
  fixed.push_back(kw("fused", !n.wants(3)));
  return script("multi_head_attention", std::move(fixed))(t, n);
}

Values full_multi_head_attention(Translator& t, const NodeView& n) {
  if (n.has(6) != n.has(7)) n.fail("past_key and past_value come together");
  return multi_head_attention(t, n, {});
}

// Translates DecoderMaskedMultiHeadAttention, one step of MultiHeadAttention. The width of beams is seen from
// cache_indirection. The kernel for the CPU takes keys in their order, also in a shared buffer.
Values decoder_masked_multi_head_attention(Translator& t, const NodeView& n) {
  if (n.has(5) != n.has(6)) n.fail("past_key and past_value come together");
  const bool is_shared = int_or_zero(n, "past_present_share_buffer") != 0;
  if (is_shared && n.has(5) && !n.has(7)) n.fail("a shared buffer needs past_sequence_length");
  const auto past_sequence_length = is_shared && n.has(5) ? Arg(n.integer(7)) : Arg(none);
  return multi_head_attention(t, n,
                              {
                                  kw("key_padding_mask", n.tensor(3)),
                                  kw("past_sequence_length", past_sequence_length),
                                  kw("unidirectional", false),
                              });
}

Values mrotary_embedding(Translator& t, const NodeView& n) {
  return script("mrotary_embedding", {
                                         number(n, "num_heads"),
                                         number(n, "rotary_embedding_dim"),
                                         flag(n, "interleaved"),
                                         number(n, "mrope_layout"),
                                         kw("scale", n.has_attribute("scale") ? n.attr_float("scale") : 1.0),
                                     })(t, n);
}

Values sparse_attention(Translator& t, const NodeView& n) {
  return script("sparse_attention", {flag(n, "do_rotary"), flag(n, "rotary_interleaved"), kw("scale", given_scale(n))})(
      t, n);
}

Values decoder_masked_self_attention(Translator& t, const NodeView& n) {
  return script("decoder_masked_self_attention", {
                                                     flag(n, "do_rotary"),
                                                     kw("is_shared", int_or_zero(n, "past_present_share_buffer") != 0),
                                                     kw("scale", given_scale(n)),
                                                     kw("mask_filter_value", mask_filter_value(n)),
                                                 })(t, n);
}

// Tells what the elements of a quantized cache are, of which uint8 holds two.
std::string coding_of(const NodeView& n, size_t cache, const std::string& given) {
  const ElementType type = n.element(cache);
  const bool is_packed = type == ElementType::Uint8;
  if (given.empty() && is_packed) n.fail("a cache of uint8 needs k_cache_dtype and v_cache_dtype");
  const std::string coding = given.empty() ? std::string(info(type).name) : given;
  const bool is_of_4_bits = coding == "int4" || coding == "float4e2m1";
  if (is_packed ? !is_of_4_bits : coding != info(type).name) n.fail("a cache does not hold numbers of type " + coding);
  return coding;
}

void check_quantization(const NodeView& n, size_t cache, const char* quant_type) {
  const bool is_quantized = n.has(cache) && n.element(cache) != n.element(0);
  if (is_quantized != (n.attr_string(quant_type) != "NONE")) {
    n.fail(std::string(quant_type) + " tells how a cache of another type than query has is quantized");
  }
}

// Translates PagedAttention and its sparse form. The outputs are of the caches' types.
Values paged_attention(Translator& t, const NodeView& n, std::vector<Arg> fixed) {
  check_quantization(n, 3, "k_quant_type");
  check_quantization(n, 4, "v_quant_type");
  for (Arg& arg : std::vector<Arg>{
           flag(n, "do_rotary"),
           flag(n, "rotary_interleaved"),
           number(n, "rotary_offset"),
           kw("scale", given_scale(n)),
           kw("softcap", float_or_zero(n, "softcap")),
           kw("qk_norm_epsilon", n.has_attribute("qk_norm_epsilon") ? n.attr_float("qk_norm_epsilon") : 1e-6),
       }) {
    fixed.push_back(std::move(arg));
  }
  Values outputs = script("paged_attention", std::move(fixed))(t, n);
  for (size_t i : {1, 2}) outputs[i] = outputs[i].as(n.element(n.has(i + 2) ? i + 2 : 3));
  return outputs;
}

Values all_paged_attention(Translator& t, const NodeView& n) {
  const bool latent = n.attr_string("kv_cache_layout") == "LATENT";
  if (!latent && !n.has(4)) n.fail("it needs a value_cache, but for the layout LATENT");
  if (!latent && int_or_zero(n, "v_head_size") != 0) n.fail("v_head_size is for the layout LATENT");
  return paged_attention(t, n,
                         {
                             number(n, "v_head_size"),
                             kw("latent", latent),
                             kw("k_coding", coding_of(n, 3, n.attr_string("k_cache_dtype"))),
                             kw("v_coding", n.has(4) ? coding_of(n, 4, n.attr_string("v_cache_dtype")) : std::string()),
                             kw("with_local", true),
                             kw("from_auxiliary", false),
                         });
}

Values sparse_paged_attention(Translator& t, const NodeView& n) {
  const std::string mode = n.attr_string("attention_mode"), source = n.attr_string("selected_kv_source");
  if (mode != "selected_only" && mode != "local_plus_selected") n.fail("there is no attention_mode " + mode);
  if (source != "main" && source != "auxiliary") n.fail("there is no selected_kv_source " + source);
  if (n.attr_string("auxiliary_cache_layout") != "contiguous") n.fail("auxiliary_cache_layout must be contiguous");
  if (n.has(11) && (n.attr_int("auxiliary_kv_shared") != 0) == n.has(12)) {
    n.fail("auxiliary_value is there where auxiliary_kv_shared is 0");
  }
  return paged_attention(t, n,
                         {
                             kw("v_head_size", int64_t{0}),
                             kw("latent", false),
                             kw("k_coding", coding_of(n, 3, "")),
                             kw("v_coding", coding_of(n, 4, "")),
                             kw("with_local", mode == "local_plus_selected"),
                             kw("from_auxiliary", source == "auxiliary"),
                         });
}

// Tells whether the policy selects tokens. Checks the attributes, of which the policy decides which are there.
bool selects_tokens(const NodeView& n) {
  const std::string policy = n.attr_string("policy_mode");
  if (policy != "qsa" && policy != "csa") n.fail("there is no policy_mode " + policy);
  const bool tokens = policy == "qsa";
  const int64_t ratio = n.attr_int("compress_ratio"), count = int_or_zero(n, tokens ? "token_budget" : "index_topk");
  if (ratio < 1 || ratio > kMostTokens) n.fail("compress_ratio must be a count");
  if (count < 1 || count > kMostTokens) n.fail("token_budget or index_topk must be a count");
  if (tokens && count % ratio != 0) n.fail("token_budget must be a multiple of compress_ratio");
  return tokens;
}

void check_given(const NodeView& n, std::initializer_list<size_t> inputs) {
  for (const size_t i : inputs) {
    if (!n.has(i)) n.fail("this policy_mode needs the input " + std::string(n.schema()->inputs[i].name));
  }
}

Values sparse_attention_indexer(Translator& t, const NodeView& n) {
  const std::vector<Arg> scale{kw("scale", given_scale(n))};
  if (selects_tokens(n)) return script("token_indexer", scale)(t, n);
  check_given(n, {1, 8, 9, 10, 11, 13});
  return script("window_indexer", scale)(t, n);
}

Values packed_sparse_attention_indexer(Translator& t, const NodeView& n) {
  const std::vector<Arg> scale{kw("scale", given_scale(n))};
  if (!selects_tokens(n)) {
    check_given(n, {1, 8, 9, 10, 11, 14});
    return script("packed_window_indexer", scale)(t, n);
  }
  const int64_t capacity = n.attr_int("state_update_capacity");
  if (capacity < 0 || capacity > 8) n.fail("state_update_capacity must be from 0 to 8");
  if (capacity > 0) check_given(n, {16});
  return script("packed_token_indexer", scale)(t, n);
}

}  // namespace

void register_contrib_cached_attention_ops(Registry& r) {
  r.op(kMicrosoft, "DecoderAttention").since(1, script("decoder_attention"));
  r.op(kMicrosoft, "DecoderMaskedMultiHeadAttention").since(1, decoder_masked_multi_head_attention);
  r.op(kMicrosoft, "DecoderMaskedSelfAttention").since(1, decoder_masked_self_attention);
  r.op(kMicrosoft, "GemmaRotaryEmbedding").since(1, script("gemma_rotary_embedding"));
  r.op(kMicrosoft, "GroupQueryAttention").since(1, group_query_attention);
  r.op(kMicrosoft, "MRotaryEmbedding").since(1, mrotary_embedding);
  r.op(kMicrosoft, "MultiHeadAttention").since(1, full_multi_head_attention);
  r.op(kMicrosoft, "PackedSparseAttentionIndexer").since(1, packed_sparse_attention_indexer);
  r.op(kMicrosoft, "PagedAttention").since(1, all_paged_attention);
  r.op(kMicrosoft, "RotaryEmbedding").since(1, rotary_embedding);
  r.op(kMicrosoft, "SparseAttention").since(1, sparse_attention);
  r.op(kMicrosoft, "SparseAttentionIndexer").since(1, sparse_attention_indexer);
  r.op(kMicrosoft, "SparsePagedAttention").since(1, sparse_paged_attention);
}

}  // namespace onnxtorch
