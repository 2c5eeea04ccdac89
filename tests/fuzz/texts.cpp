// The operators on strings, without a model around them.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <functional>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/run_guard.h"
#include "base/string_pool.h"
#include "kernels/standard/byte_pair_decoder.h"
#include "kernels/standard/byte_pairs.h"
#include "kernels/standard/sentence_pieces.h"
#include "kernels/standard/tfidf.h"
#include "kernels/standard/tokenizer.h"
#include "kernels/standard/word_piece_decoder.h"
#include "kernels/standard/word_pieces.h"
#include "targets.h"

namespace onnxtorch::fuzz {
namespace {

// The lines of an input: an operator with a choice of its options, "split 3"; two arguments, such as a pattern and what
// is put in its place; then the texts.
struct Texts {
  std::string_view name;
  int64_t choice;
  std::string first, second;
  c10::intrusive_ptr<StringPool> pool = c10::make_intrusive<StringPool>();
  at::Tensor x;

  bool chosen(int bit) const { return (choice >> bit & 1) != 0; }
  at::Tensor single(const std::string& text) const { return at::tensor({pool->intern(text)}, at::kLong); }
};

std::string_view take_line(std::string_view& rest) {
  const size_t end = std::min(rest.find('\n'), rest.size());
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return line;
}

int64_t number_in(std::string_view text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Texts texts_of(std::string_view rest) {
  Texts texts;
  const std::string_view operation = take_line(rest);
  const size_t space = std::min(operation.find(' '), operation.size());
  texts.name = operation.substr(0, space);
  texts.choice = number_in(operation.substr(std::min(space + 1, operation.size())));
  texts.first = take_line(rest);
  texts.second = take_line(rest);
  std::vector<int64_t> ids;
  while (!rest.empty()) ids.push_back(texts.pool->intern(take_line(rest)));
  texts.x = at::tensor(ids, at::kLong);
  return texts;
}

void call(const char* name, std::vector<c10::IValue> arguments) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&arguments);
}

void normalize(const Texts& t) {
  const char* const action = t.chosen(0) ? "LOWER" : t.chosen(1) ? "UPPER" : "NONE";
  const c10::List<std::string> stop_words{t.first};
  call("onnx_torch::string_normalizer", {t.pool, t.x, action, t.chosen(2), stop_words, t.second});
}

void read_numbers(const Texts& t) {
  const at::ScalarType type = std::array{at::kFloat, at::kDouble, at::kLong, at::kBool}[t.choice & 3];
  call("onnx_torch::string_to_number", {t.pool, t.x, type});
}

// The numbers' bits are those of the ids and of the choice.
void write_numbers(const Texts& t) {
  const at::ScalarType type = std::array{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16,
                                         at::kLong,  at::kByte,   at::kShort}[static_cast<uint64_t>(t.choice) % 7];
  call("onnx_torch::number_to_string", {t.pool, t.x.mul(t.choice).view(type), type == at::kLong && t.chosen(8)});
}

void tokenize(const Texts& t) {
  Tokenizer::Attributes attributes{.pad_value = t.second, .mincharnum = t.choice >> 2, .mark = t.chosen(0)};
  if (t.chosen(1)) {
    attributes.separators = {t.first, t.second};
  } else {
    attributes.tokenexp = t.first;
  }
  call("onnx_torch::tokenize", {t.pool, t.x, c10::make_intrusive<Tokenizer>(std::move(attributes))});
}

// Counts the texts among themselves: the first half are n-grams, of the sizes that the numbers tell.
void count_ngrams(const Texts& t) {
  const auto* const ids = t.x.const_data_ptr<int64_t>();
  const std::vector<int64_t> pool(ids, ids + t.x.numel() / 2), starts{0, number_in(t.first)};
  std::vector<int64_t> columns;
  for (size_t i = 0; i < pool.size(); ++i) columns.push_back(number_in(t.second) + static_cast<int64_t>(i));
  const TfIdfVectorizer::Attributes attributes{.mode = t.chosen(0) ? "TF" : "TFIDF",
                                               .min_gram_length = t.choice & 3,
                                               .max_gram_length = t.choice & 7,
                                               .max_skip_count = t.choice >> 3,
                                               .ngram_counts = starts,
                                               .ngram_indexes = columns,
                                               .pool = pool,
                                               .weights = {}};
  call("onnx_torch::tf_idf_vectorizer", {t.x, c10::make_intrusive<TfIdfVectorizer>(attributes)});
}

// An argument is one line; semicolons part the lines of a file in it.
std::string in_lines(std::string text) {
  std::ranges::replace(text, ';', '\n');
  return text;
}

void find_pieces(const Texts& t) {
  WordPieces::Attributes attributes{.vocab_file = in_lines(t.first),
                                    .unk_token = "[UNK]",
                                    .sep_token = "[SEP]",
                                    .cls_token = "[CLS]",
                                    .suffix_indicator = t.second,
                                    .do_lower_case = t.chosen(0),
                                    .do_basic_tokenize = t.chosen(1),
                                    .tokenize_chinese_chars = t.chosen(2),
                                    .strip_accents = t.chosen(3),
                                    .max_length = t.choice >> 4};
  const auto pieces = c10::make_intrusive<WordPieces>(std::move(attributes));
  for (const at::Tensor& text : t.x.split(1)) call("onnx_torch::word_pieces", {t.pool, text, pieces, false});
}

void join_pieces(const Texts& t) {
  WordPieceDecoder::Attributes attributes{.vocab_file = in_lines(t.first),
                                          .unk_token = "[UNK]",
                                          .sep_token = "[SEP]",
                                          .pad_token = "[PAD]",
                                          .cls_token = "[CLS]",
                                          .mask_token = "[MASK]",
                                          .suffix_indicator = t.second,
                                          .skip_special_tokens = t.chosen(0),
                                          .clean_up_tokenization_spaces = t.chosen(1)};
  const auto ranges = t.chosen(2) ? c10::IValue(t.x.add(t.choice >> 3).reshape({-1, 2})) : c10::IValue();
  call("onnx_torch::word_piece_texts",
       {t.pool, t.x, ranges, c10::make_intrusive<WordPieceDecoder>(std::move(attributes))});
}

void merge_bytes(const Texts& t) {
  BytePairs::Attributes attributes{.vocab = t.first,
                                   .merges = in_lines(t.second),
                                   .added_token = t.chosen(0) ? in_lines(t.second) : "",
                                   .unk_token = "<unk>",
                                   .bos_token = "<s>",
                                   .eos_token = "</s>",
                                   .pad_token = t.chosen(1) ? "<pad>" : "",
                                   .has_marks = t.chosen(2),
                                   .is_clip = t.chosen(3),
                                   .padding_length = t.choice > 15 ? t.choice >> 4 : -1};
  call("onnx_torch::byte_pairs", {t.pool, t.x, c10::make_intrusive<BytePairs>(std::move(attributes))});
}

void join_bytes(const Texts& t) {
  BytePairDecoder::Attributes attributes{.id_vocab = in_lines(t.first),
                                         .byte_decoder = in_lines(t.second),
                                         .added_tokens = t.chosen(0) ? in_lines(t.second) : "",
                                         .all_special_ids = t.chosen(1) ? in_lines(t.second) : "",
                                         .unk_token = "?",
                                         .skip_special_tokens = t.chosen(2),
                                         .whitespace_token = t.chosen(3)};
  call("onnx_torch::byte_pair_texts", {t.pool, t.x, c10::make_intrusive<BytePairDecoder>(std::move(attributes))});
}

// The model is in base64.
void find_sentence_pieces(const Texts& t) {
  const auto pieces = c10::make_intrusive<SentencePieces>(SentencePieces::Attributes{.model = t.first});
  const auto flag = [&](int bit) { return at::tensor({t.chosen(bit)}, at::kBool); };
  call("onnx_torch::sentence_pieces", {t.pool, t.x, pieces, flag(0), flag(1), flag(2), flag(3)});
}

void join_sentence_pieces(const Texts& t) {
  const auto pieces = c10::make_intrusive<SentencePieces>(SentencePieces::Attributes{.model = t.first});
  call("onnx_torch::sentence_text", {t.pool, t.x % 16, pieces, at::tensor({t.chosen(0)}, at::kBool)});
}

const std::map<std::string_view, std::function<void(const Texts&)>>& operations() {
  static const std::map<std::string_view, std::function<void(const Texts&)>> all{
      {"concat", [](const Texts& t) { call("onnx_torch::string_concat", {t.pool, t.x, t.single(t.first)}); }},
      {"split", [](const Texts& t) { call("onnx_torch::string_split", {t.pool, t.x, t.first, t.choice}); }},
      {"match", [](const Texts& t) { call("onnx_torch::regex_full_match", {t.pool, t.x, t.first}); }},
      {"normalize", normalize},
      {"read", read_numbers},
      {"write", write_numbers},
      {"unique", [](const Texts& t) { call("onnx_torch::unique_strings", {t.pool, t.x, c10::IValue(), t.chosen(0)}); }},
      {"hash", [](const Texts& t) { call("onnx_torch::hash_strings", {t.pool, t.x, t.choice}); }},
      {"tokenize", tokenize},
      {"ngrams", count_ngrams},
      {"replace",
       [](const Texts& t) {
         call("onnx_torch::regex_replace", {t.pool, t.x, t.single(t.first), t.single(t.second), t.chosen(0)});
       }},
      {"pieces",
       [](const Texts& t) { call("onnx_torch::regex_split", {t.pool, t.x, t.single(t.first), t.single(t.second)}); }},
      {"find_pieces", find_pieces},
      {"join_pieces", join_pieces},
      {"merge_bytes", merge_bytes},
      {"join_bytes", join_bytes},
      {"find_sentence_pieces", find_sentence_pieces},
      {"join_sentence_pieces", join_sentence_pieces},
      {"sparse",
       [](const Texts& t) {
         call("onnx_torch::split_sparse", {t.pool, t.x, t.single(t.first), at::tensor({t.chosen(0)}, at::kBool)});
       }},
      {"join", [](const Texts& t) { call("onnx_torch::string_join", {t.pool, t.x, t.single(t.first), t.choice}); }},
      {"case", [](const Texts& t) { call("onnx_torch::ascii_case", {t.pool, t.x, t.chosen(0)}); }},
      {"strip", [](const Texts& t) { call("onnx_torch::ascii_strip", {t.pool, t.x}); }},
      {"length", [](const Texts& t) { call("onnx_torch::string_length", {t.pool, t.x}); }},
  };
  return all;
}

}  // namespace

// In a run, whatever an operator throws becomes an error that names its node.
Outcome text(const std::string& bytes) {
  const Texts texts = texts_of(bytes);
  const auto operation = operations().find(texts.name);
  if (operation == operations().end()) return Outcome::NoModel;
  try {
    const MemoryScope memory(kMemory);
    operation->second(texts);
    return Outcome::Ran;
  } catch (const std::exception&) {
    return Outcome::Failed;
  }
}

}  // namespace onnxtorch::fuzz
