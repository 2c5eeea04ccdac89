#include "kernels/standard/word_pieces.h"

#include <torch/library.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>
#include <utility>

#include "kernels/standard/saved_attributes.h"
#include "kernels/standard/texts.h"

namespace onnxtorch {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_white_space(char32_t c) {
  const auto kind = category(c);
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' ||
         (kind >= UTF8PROC_CATEGORY_ZS && kind <= UTF8PROC_CATEGORY_ZP);
}

// Tells whether a character is none of the text: unassigned, for control or of private use, or one in place of another.
bool is_left_out(char32_t c) {
  const auto kind = category(c);
  return c == 0 || c == 0xFFFD || kind == UTF8PROC_CATEGORY_CN ||
         (kind >= UTF8PROC_CATEGORY_CC && kind <= UTF8PROC_CATEGORY_CO);
}

// Tells whether a character is a word by itself. In ASCII all are that are no letters or digits.
bool is_punctuation(char32_t c) {
  const auto kind = category(c);
  return (c > ' ' && c < 0x7F && !std::isalnum(static_cast<unsigned char>(c))) ||
         (kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO);
}

// Tells whether a character is an ideograph of Chinese, which has no spaces between words.
bool is_ideograph(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 8> kBlocks = {{{0x3400, 0x4DBF},
                                                                     {0x4E00, 0x9FFF},
                                                                     {0xF900, 0xFAFF},
                                                                     {0x20000, 0x2A6DF},
                                                                     {0x2A700, 0x2B73F},
                                                                     {0x2B740, 0x2B81F},
                                                                     {0x2B820, 0x2CEAF},
                                                                     {0x2F800, 0x2FA1F}}};
  return std::ranges::any_of(kBlocks, [c](const auto& block) { return c >= block.first && c <= block.second; });
}

// Adds a letter's parts but for the marks on it.
void add_without_accents(char32_t c, std::u32string& text) {
  std::array<utf8proc_int32_t, 8> parts;
  int boundary = UTF8PROC_BOUNDCLASS_START;
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), parts.size(),
                                             UTF8PROC_DECOMPOSE, &boundary);
  TORCH_CHECK(count >= 0 && count <= std::ssize(parts), utf8proc_errmsg(count));
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    const auto part = static_cast<char32_t>(parts[i]);
    if (category(part) != UTF8PROC_CATEGORY_MN) text.push_back(part);
  }
}

// Puts what `add` makes of each character in the place of it.
template <typename Add>
void replace_each(std::u32string& text, const Add& add) {
  std::u32string changed;
  changed.reserve(text.size());
  for (const char32_t c : text) add(c, changed);
  text = std::move(changed);
}

}  // namespace

// Reads the vocabulary. A token's id is the number of its line among those that are not empty; of equal tokens the last
// counts.
WordPieces::WordPieces(Attributes attributes) : attributes_(std::move(attributes)) {
  int64_t id = 0;
  for_each_line(attributes_.vocab_file, [&](std::string_view token) { ids_[token] = id++; });
  unk_ = id_of(attributes_.unk_token);
  cls_ = id_of(attributes_.cls_token);
  sep_ = id_of(attributes_.sep_token);
}

int64_t WordPieces::id_of(const std::string& token) const {
  const auto found = ids_.find(token);
  TORCH_CHECK_VALUE(found != ids_.end(), "the vocabulary has no token '", token, "'");
  return found->second;
}

// Gives the text without control characters, with spaces around ideographs, without accents and in small letters, as
// far as the attributes ask for it.
std::u32string WordPieces::normalized(std::string_view text) const {
  std::u32string codes;
  while (!text.empty()) codes.push_back(take_code_point(text));
  if (!attributes_.do_basic_tokenize) return codes;
  const bool parts_ideographs = attributes_.tokenize_chinese_chars;
  replace_each(codes, [&](char32_t c, std::u32string& to) {
    if (is_white_space(c)) {
      to.push_back(' ');
    } else if (parts_ideographs && is_ideograph(c)) {
      to.append({U' ', c, U' '});
    } else if (!is_left_out(c)) {
      to.push_back(c);
    }
  });
  if (attributes_.strip_accents) replace_each(codes, add_without_accents);
  if (attributes_.do_lower_case) replace_each(codes, [](char32_t c, std::u32string& to) { append_lower_case(to, c); });
  return codes;
}

std::vector<std::u32string> WordPieces::words(std::string_view text) const {
  std::vector<std::u32string> words;
  std::u32string word;
  const auto end_word = [&] {
    if (!word.empty()) words.push_back(std::exchange(word, {}));
  };
  for (const char32_t c : normalized(text)) {
    if (is_white_space(c)) {
      end_word();
    } else if (attributes_.do_basic_tokenize && is_punctuation(c)) {
      end_word();
      words.emplace_back(1, c);
    } else {
      word.push_back(c);
    }
  }
  end_word();
  return words;
}

// Adds the ids of the pieces of a word, each the longest that fits. A word that is too long, or has a part that is no
// piece, becomes one unknown token.
void WordPieces::add_pieces(const std::u32string& word, std::vector<int64_t>& ids) const {
  constexpr size_t kLongest = 100;  // characters
  const size_t before = ids.size();
  size_t begin = 0;
  while (begin < word.size() && word.size() <= kLongest) {
    const std::string mark = begin > 0 ? attributes_.suffix_indicator : "";
    size_t end = word.size();
    auto found = ids_.end();
    for (; end > begin && found == ids_.end(); --end) {
      found = ids_.find(mark + utf8(std::u32string_view(word).substr(begin, end - begin)));
    }
    if (found == ids_.end()) break;
    ids.push_back(found->second);
    begin = end + 1;
  }
  if (begin == word.size()) return;
  ids.resize(before);
  ids.push_back(unk_);
}

std::vector<int64_t> WordPieces::ids(std::string_view text) const {
  std::vector<int64_t> ids;
  for (const std::u32string& word : words(text)) add_pieces(word, ids);
  return ids;
}

namespace {

// Gives the ids of a text's pieces, or of two texts', with marks before and behind them, and for each id the index of
// its text. One text alone has max_length ids at most, as in onnxruntime-extensions.
std::tuple<at::Tensor, at::Tensor> word_pieces(const Pool& pool, const at::Tensor& text,
                                               const c10::intrusive_ptr<WordPieces>& pieces, bool is_pair) {
  constexpr int64_t kMarks = 2;
  const int64_t count = text.numel();
  TORCH_CHECK_VALUE(count == 2 || (count == 1 && !is_pair), "the tokenizer takes ", is_pair ? "" : "one text or ",
                    "two texts, not ", count);
  const at::Tensor in = on_host(text);
  std::vector<int64_t> ids{pieces->cls()}, types{0};
  for (int64_t i = 0; i < count; ++i) {
    auto found = pieces->ids(pool->at(in.const_data_ptr<int64_t>()[i]));
    const int64_t most = std::max<int64_t>(pieces->attributes().max_length, kMarks) - kMarks;
    if (count == 1 && most > 0 && std::ssize(found) > most) found.resize(most);
    ids.insert(ids.end(), found.begin(), found.end());
    ids.push_back(pieces->sep());
    types.resize(ids.size(), i);
  }
  return {at::tensor(ids, at::kLong).to(text.device()), at::tensor(types, at::kLong).to(text.device())};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  register_string_pool();
  register_saved_class<WordPieces>(m, "WordPieces");
  m.def(
      "word_pieces(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor text, "
      "__torch__.torch.classes.onnx_torch.WordPieces pieces, bool is_pair) -> (Tensor, Tensor)");
  m.impl("word_pieces", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(word_pieces));
}

}  // namespace onnxtorch
