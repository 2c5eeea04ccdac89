// The operators of onnxruntime-extensions on texts, segments and sound. Tokenizers are in tokenizers.cpp. Maps are in an
// attribute: a line for each key, which a tab parts from its value.
#include <charconv>
#include <map>
#include <vector>

#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

// Makes the translator that calls a kernel of texts on the node's inputs and what is fixed.
TranslateFunction of_texts(const std::string& kernel, const std::vector<Arg>& fixed = {}) {
  return [kernel, fixed](Translator& t, const NodeView& n) {
    std::vector<Arg> args{t.string_pool()};
    for (const Value& input : n.tensors()) args.emplace_back(input);
    args.insert(args.end(), fixed.begin(), fixed.end());
    return t.call_all("onnx_torch::" + kernel, args);
  };
}

Values string_join(Translator& t, const NodeView& n) {
  return {t.call("onnx_torch::string_join", {t.string_pool(), n.tensor(0), n.tensor(1), n.integer(2)})};
}

Values regex_replace(Translator& t, const NodeView& n) {
  return {t.call("onnx_torch::regex_replace",
                 {t.string_pool(), n.tensor(0), n.tensor(1), n.tensor(2), n.attr_int("global_replace") != 0})};
}

// ---- Maps

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Reads the lines of the attribute "map" as keys and their values; of equal keys the last counts.
std::map<std::string, std::string> map_of(const NodeView& n) {
  std::map<std::string, std::string> map;
  for (const std::string& line : split(n.attr_string("map"), '\n')) {
    const auto parts = split(line, '\t');
    if (parts.size() != 2) n.fail("a line of the map must hold a key, a tab and a value: \"" + line + "\"");
    map[parts[0]] = parts[1];
  }
  if (map.empty()) n.fail("the map is empty");
  return map;
}

std::vector<int64_t> integers_of(const NodeView& n, const std::string& text) {
  std::vector<int64_t> numbers;
  for (const std::string& part : split(text, ' ')) {
    int64_t& number = numbers.emplace_back();
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size()) n.fail("\"" + part + "\" is not an integer");
  }
  return numbers;
}

// Texts and the vectors that the map has for them, all of one length.
struct TextVectors {
  std::vector<std::string> texts;
  std::vector<int64_t> numbers;
  int64_t length = 0;
};

TextVectors vectors_of(const NodeView& n) {
  TextVectors vectors;
  for (const auto& [text, value] : map_of(n)) {
    const auto numbers = integers_of(n, value);
    if (vectors.texts.empty()) vectors.length = std::ssize(numbers);
    if (std::ssize(numbers) != vectors.length) n.fail("the vectors of the map differ in length");
    vectors.texts.push_back(text);
    vectors.numbers.insert(vectors.numbers.end(), numbers.begin(), numbers.end());
  }
  return vectors;
}

Values string_mapping(Translator& t, const NodeView& n) {
  std::vector<std::string> keys, values;
  for (const auto& [key, value] : map_of(n)) {
    keys.push_back(key);
    values.push_back(value);
  }
  return {t.call("string_mapping", {n.tensor(0), t.strings(keys), t.strings(values)})};
}

Values string_to_vector(Translator& t, const NodeView& n) {
  TextVectors vectors = vectors_of(n);
  const auto unknown = integers_of(n, n.has_attribute("unk") ? n.attr_string("unk") : "");
  if (std::ssize(unknown) != vectors.length) {
    n.fail("unk must be a vector of " + std::to_string(vectors.length) + " integers");
  }
  vectors.numbers.insert(vectors.numbers.end(), unknown.begin(), unknown.end());
  return {t.call("string_to_vector",
                 {n.tensor(0), t.strings(vectors.texts), t.tensor(t.scalar(vectors.numbers)), vectors.length})};
}

Values vector_to_string(Translator& t, const NodeView& n) {
  TextVectors vectors = vectors_of(n);
  vectors.texts.push_back(n.attr_string("unk"));
  return {t.call("vector_to_string",
                 {n.tensor(0), t.tensor(t.scalar(vectors.numbers)), vectors.length, t.strings(vectors.texts)})};
}

// ---- Sound

Values stft_norm(Translator& t, const NodeView& n) {
  return {t.call("stft_norm",
                 {n.tensor(0), n.integer(1), n.integer(2), n.tensor(3), n.integer(4), n.attr_int("onesided") != 0})};
}

}  // namespace

void register_contrib_extensions_ops(Registry& r) {
  r.op(kExtensions, "DecodeImage").since(1, script("decode_image"));
  r.op(kExtensions, "ImageDecoder").since(1, script("decode_image", {kw("color_space", "bgr")}));
  r.op(kExtensions, "Inverse").since(1, script("inverse_of_matrix"));
  r.op(kExtensions, "MaskedFill").since(1, script("masked_fill_of_texts"));
  r.op(kExtensions, "NegPos").since(1, script("neg_pos"));
  r.op(kExtensions, "SegmentExtraction").since(1, script("segment_extraction"));
  r.op(kExtensions, "SegmentSum").since(1, script("segment_sum"));
  r.op(kExtensions, "StftNorm").since(1, stft_norm);
  r.op(kExtensions, "StringConcat").since(1, of_texts("string_concat"));
  r.op(kExtensions, "StringEqual").since(1, script("string_equal"));
  r.op(kExtensions, "StringJoin").since(1, string_join);
  r.op(kExtensions, "StringLength").since(1, of_texts("string_length"));
  r.op(kExtensions, "StringLower").since(1, of_texts("ascii_case", {false}));
  r.op(kExtensions, "StringMapping").since(1, string_mapping);
  r.op(kExtensions, "StringRegexReplace").since(1, regex_replace);
  r.op(kExtensions, "StringRegexSplitWithOffsets").since(1, of_texts("regex_split"));
  r.op(kExtensions, "StringSplit").since(1, of_texts("split_sparse"));
  r.op(kExtensions, "StringStrip").since(1, of_texts("ascii_strip"));
  r.op(kExtensions, "StringToVector").since(1, string_to_vector);
  r.op(kExtensions, "StringUpper").since(1, of_texts("ascii_case", {true}));
  r.op(kExtensions, "VectorToString").since(1, vector_to_string);
}

}  // namespace onnxtorch
