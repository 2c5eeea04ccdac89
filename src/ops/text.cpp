// StringConcat, StringSplit, StringNormalizer, RegexFullMatch, TfIdfVectorizer.
#include <ATen/core/ivalue.h>

#include "kernels/standard/tfidf.h"
#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

Values string_concat(Translator& t, const NodeView& n) {
  return {t.call("onnx_torch::string_concat", {t.string_pool(), n.tensor(0), n.tensor(1)})};
}

Values string_split(Translator& t, const NodeView& n) {
  const Arg delimiter = n.has_attribute("delimiter") ? Arg(n.attr_string("delimiter")) : Arg(none);
  const Arg maxsplit = n.has_attribute("maxsplit") ? Arg(n.attr_int("maxsplit")) : Arg(none);
  return t.call_all("onnx_torch::string_split", {t.string_pool(), n.tensor(0), delimiter, maxsplit});
}

Values string_normalizer(Translator& t, const NodeView& n) {
  const auto stopwords = n.has_attribute("stopwords") ? n.attr_strings("stopwords") : std::vector<std::string>{};
  const std::string locale = n.has_attribute("locale") ? n.attr_string("locale") : "en_US";
  return {t.call("onnx_torch::string_normalizer", {t.string_pool(), n.tensor(0), n.attr_string("case_change_action"),
                                                   n.attr_int("is_case_sensitive") != 0, stopwords, locale})};
}

Values regex_full_match(Translator& t, const NodeView& n) {
  return {t.call("onnx_torch::regex_full_match", {t.string_pool(), n.tensor(0), n.attr_string("pattern")})};
}

std::vector<int64_t> ngram_pool(Translator& t, const NodeView& n) {
  const bool of_strings = n.has_attribute("pool_strings");
  if (of_strings == n.has_attribute("pool_int64s")) n.fail("exactly one of pool_strings and pool_int64s must be set");
  if (of_strings != (n.element(0) == ElementType::String)) n.fail("the pool and the input differ in type");
  if (!of_strings) return n.attr_ints("pool_int64s");
  std::vector<int64_t> ids;
  for (const std::string& text : n.attr_strings("pool_strings")) ids.push_back(t.string_id(text));
  return ids;
}

Values tf_idf_vectorizer(Translator& t, const NodeView& n) {
  const auto vectorizer = c10::make_intrusive<TfIdfVectorizer>(TfIdfVectorizer::Attributes{
      .mode = n.attr_string("mode"),
      .min_gram_length = n.attr_int("min_gram_length"),
      .max_gram_length = n.attr_int("max_gram_length"),
      .max_skip_count = n.attr_int("max_skip_count"),
      .ngram_counts = n.attr_ints("ngram_counts"),
      .ngram_indexes = n.attr_ints("ngram_indexes"),
      .pool = ngram_pool(t, n),
      .weights = n.has_attribute("weights") ? n.attr_floats("weights") : std::vector<double>{},
  });
  return {t.call("onnx_torch::tf_idf_vectorizer", {n.tensor(0), t.object(vectorizer)})};
}

}  // namespace

void register_text_ops(Registry& r) {
  r.op("StringConcat").since(20, string_concat);
  r.op("StringSplit").since(20, string_split);
  r.op("StringNormalizer").since(10, string_normalizer);
  r.op("RegexFullMatch").since(20, regex_full_match);
  r.op("TfIdfVectorizer").since(9, tf_idf_vectorizer);
}

}  // namespace onnxtorch
