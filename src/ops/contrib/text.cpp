// Tokenizer, n-grams and hashes.
#include "kernels/standard/tokenizer.h"
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// Translates Tokenizer. Of separators and tokenexp, only one should be given; onnxruntime takes the separators where
// both are.
Values tokenizer(Translator& t, const NodeView& n) {
  const auto tokenizer = c10::make_intrusive<Tokenizer>(Tokenizer::Attributes{
      .separators = n.has_attribute("separators") ? n.attr_strings("separators") : std::vector<std::string>{},
      .tokenexp = n.has_attribute("tokenexp") ? n.attr_string("tokenexp") : "",
      .pad_value = n.attr_string("pad_value"),
      .mincharnum = n.attr_int("mincharnum"),
      .mark = n.attr_int("mark") != 0,
  });
  return {t.call("onnx_torch::tokenize", {t.string_pool(), n.tensor(0), t.object(tokenizer)})};
}

Value hash(Translator& t, const NodeView& n) {
  const Value x = n.tensor(0);
  const int64_t seed = n.attr_int("seed");
  if (n.element(0) == ElementType::String) return t.call("onnx_torch::hash_strings", {t.string_pool(), x, seed});
  const bool is_wider = n.element(0) == ElementType::Uint32;  // whether it is stored wider than its 32 bits
  return t.call("onnx_torch::hash_elements", {is_wider ? t.call("aten::to", {x, ElementType::Int32}) : x, seed});
}

Values murmur_hash3(Translator& t, const NodeView& n) {
  if (n.attr_int("positive") != 0) return {hash(t, n).as(ElementType::Uint32)};
  return {t.call("aten::to", {hash(t, n), ElementType::Int32}).as(ElementType::Int32)};
}

}  // namespace

void register_contrib_text_ops(Registry& r) {
  r.op(kMicrosoft, "MurmurHash3").since(1, murmur_hash3);
  r.op(kMicrosoft, "NGramHashMapping").since(1, script("ngram_hash_mapping"));
  r.op(kMicrosoft, "NGramRepeatBlock").since(1, script("ngram_repeat_block"));
  r.op(kMicrosoft, "Tokenizer").since(1, tokenizer);
  r.op(kMicrosoft, "VarlenNGramHashMapping").since(1, script("varlen_ngram_hash_mapping"));
  r.op(kMicrosoft, "WordConvEmbedding").since(1, script("word_conv_embedding"));
}

}  // namespace onnxtorch
