// The operators of onnxruntime-extensions on text, and what goes with it. Maps are in an attribute: a line for each
// key, which a tab parts from its value.
#include <charconv>
#include <map>
#include <vector>

#include "kernels/standard/byte_pair_decoder.h"
#include "kernels/standard/byte_pairs.h"
#include "kernels/standard/word_piece_decoder.h"
#include "kernels/standard/word_pieces.h"
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

constexpr char kExtensions[] = "ai.onnx.contrib";

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

// ---- Tokenizers

// Gives the ids of the pieces, the indices of their texts, and a mask of ones.
Values bert_tokens(Translator& t, const NodeView& n, bool is_pair) {
  if (n.wants(3)) n.unsupported("with the output offset_mapping");
  const auto pieces = c10::make_intrusive<WordPieces>(WordPieces::Attributes{
      .vocab_file = n.attr_string("vocab_file"),
      .unk_token = n.attr_string("unk_token"),
      .sep_token = n.attr_string("sep_token"),
      .cls_token = n.attr_string("cls_token"),
      .suffix_indicator = n.attr_string("suffix_indicator"),
      .do_lower_case = n.attr_int("do_lower_case") != 0,
      .do_basic_tokenize = n.attr_int("do_basic_tokenize") != 0,
      .tokenize_chinese_chars = n.attr_int("tokenize_chinese_chars") != 0,
      .strip_accents = n.attr_int("strip_accents") != 0,
      .max_length = n.attr_int("max_length"),
  });
  Values found = t.call_all("onnx_torch::word_pieces", {t.string_pool(), n.tensor(0), t.object(pieces), is_pair});
  found.push_back(t.call("aten::ones_like", {found[0]}));
  return found;
}

Values bert_tokenizer(Translator& t, const NodeView& n) { return bert_tokens(t, n, /*is_pair=*/false); }

Values hf_bert_tokenizer(Translator& t, const NodeView& n) {
  Values found = bert_tokens(t, n, /*is_pair=*/true);
  for (Value& row : found) row = t.call("aten::unsqueeze", {row, 0});
  return {found[0], found[2], found[1]};
}

// The marks of a kind of tokenizers, and its name, for which the attribute model_name may give another kind's.
struct BytePairKind {
  std::string name, unk_token, bos_token, eos_token, pad_token;
};

// Makes the translator that gives the ids of the tokens, padded to one length, and a mask of them.
TranslateFunction byte_pair_tokenizer(const BytePairKind& kind) {
  return [kind](Translator& t, const NodeView& n) -> Values {
    if (n.wants(2)) n.unsupported("with the output offset_mapping");
    const std::string given = n.attr_string("model_name"), name = given.empty() ? kind.name : given;
    if (name != "GPT2" && name != "CodeGen" && name != "CLIP" && name != "Roberta") {
      n.unsupported("with the model_name \"" + name + "\": GPT2, CodeGen, CLIP and Roberta are known");
    }
    const auto pairs = c10::make_intrusive<BytePairs>(BytePairs::Attributes{
        .vocab = n.attr_string("vocab"),
        .merges = n.attr_string("merges"),
        .added_token = n.attr_string("added_token"),
        .unk_token = kind.unk_token,
        .bos_token = kind.bos_token,
        .eos_token = kind.eos_token,
        .pad_token = kind.pad_token,
        .has_marks = name == "CLIP" || name == "Roberta",
        .is_clip = name == "CLIP",
        .padding_length = n.attr_int("padding_length"),
    });
    return t.call_all("onnx_torch::byte_pairs", {t.string_pool(), n.tensor(0), t.object(pairs)});
  };
}

const std::string kEndOfText = "<|endoftext|>";
const BytePairKind kGpt2{"GPT2", kEndOfText, kEndOfText, kEndOfText, ""};
const BytePairKind kClip{"CLIP", kEndOfText, "<|startoftext|>", kEndOfText, kEndOfText};
const BytePairKind kRoberta{"Roberta", "<unk>", "<s>", "</s>", "<pad>"};

Values bpe_decoder(Translator& t, const NodeView& n) {
  const auto decoder = c10::make_intrusive<BytePairDecoder>(BytePairDecoder::Attributes{
      .id_vocab = n.attr_string("id_vocab"),
      .byte_decoder = n.attr_string("byte_decoder"),
      .added_tokens = n.attr_string("added_tokens"),
      .all_special_ids = n.attr_string("all_special_ids"),
      .unk_token = n.attr_string("unk_token"),
      .skip_special_tokens = n.attr_int("skip_special_tokens") != 0,
      .whitespace_token = n.attr_int("whitespace_token") != 0,
  });
  return t.call_all("onnx_torch::byte_pair_texts", {t.string_pool(), n.tensor(0), t.object(decoder)});
}

// The input `positions` counts with use_indices alone.
Values bert_tokenizer_decoder(Translator& t, const NodeView& n) {
  const auto decoder = c10::make_intrusive<WordPieceDecoder>(WordPieceDecoder::Attributes{
      .vocab_file = n.attr_string("vocab_file"),
      .unk_token = n.attr_string("unk_token"),
      .sep_token = n.attr_string("sep_token"),
      .pad_token = n.attr_string("pad_token"),
      .cls_token = n.attr_string("cls_token"),
      .mask_token = n.attr_string("mask_token"),
      .suffix_indicator = n.attr_string("suffix_indicator"),
      .skip_special_tokens = n.attr_int("skip_special_tokens") != 0,
      .clean_up_tokenization_spaces = n.attr_int("clean_up_tokenization_spaces") != 0,
  });
  const Arg ranges = n.attr_int("use_indices") != 0 ? Arg(n.tensor(1)) : Arg(none);
  return t.call_all("onnx_torch::word_piece_texts", {t.string_pool(), n.tensor(0), ranges, t.object(decoder)});
}

// ---- Sound

Values stft_norm(Translator& t, const NodeView& n) {
  return {t.call("stft_norm",
                 {n.tensor(0), n.integer(1), n.integer(2), n.tensor(3), n.integer(4), n.attr_int("onesided") != 0})};
}

}  // namespace

void register_contrib_extensions_ops(Registry& r) {
  r.op(kExtensions, "BertTokenizer").since(1, bert_tokenizer);
  r.op(kExtensions, "BertTokenizerDecoder").since(1, bert_tokenizer_decoder);
  r.op(kExtensions, "BpeDecoder").since(1, bpe_decoder);
  r.op(kExtensions, "CLIPTokenizer").since(1, byte_pair_tokenizer(kClip));
  r.op(kExtensions, "DecodeImage").since(1, script("decode_image"));
  r.op(kExtensions, "GPT2Tokenizer").since(1, byte_pair_tokenizer(kGpt2));
  r.op(kExtensions, "HfBertTokenizer").since(1, hf_bert_tokenizer);
  r.op(kExtensions, "ImageDecoder").since(1, script("decode_image", {kw("color_space", "bgr")}));
  r.op(kExtensions, "Inverse").since(1, script("inverse_of_matrix"));
  r.op(kExtensions, "MaskedFill").since(1, script("masked_fill_of_texts"));
  r.op(kExtensions, "NegPos").since(1, script("neg_pos"));
  r.op(kExtensions, "RobertaTokenizer").since(1, byte_pair_tokenizer(kRoberta));
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
