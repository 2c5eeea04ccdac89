#include "kernels/standard/byte_pairs.h"

#include <torch/library.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "kernels/standard/pair_merging.h"
#include "kernels/standard/saved_attributes.h"
#include "kernels/standard/texts.h"

namespace onnxtorch {
namespace {

constexpr char kWordEnd[] = "</w>";

// ---- The attributes

// Takes four hexadecimal digits off a text.
char32_t take_hexadecimal(std::string_view& text) {
  uint32_t value = 0;
  TORCH_CHECK_VALUE(text.size() >= 4, "the vocabulary has a character that is cut off");
  const auto [end, error] = std::from_chars(text.data(), text.data() + 4, value, 16);
  TORCH_CHECK_VALUE(error == std::errc() && end == text.data() + 4, "the vocabulary has a character without a number");
  text.remove_prefix(4);
  return value;
}

// Takes the character that follows "\u" off a text. One beyond 16 bits is written as two, the second after "\u" again.
char32_t take_escaped(std::string_view& text) {
  const char32_t first = take_hexadecimal(text);
  if (first < 0xD800 || first > 0xDBFF || !text.starts_with("\\u")) return first;
  text.remove_prefix(2);
  return 0x10000 + ((first - 0xD800) << 10) + (take_hexadecimal(text) - 0xDC00);
}

// Gives a string of JSON without its escapes.
std::string plain(std::string_view json) {
  constexpr std::string_view kNames = "bfnrt", kCharacters = "\b\f\n\r\t";
  std::string text;
  while (!json.empty()) {
    const char c = json.front();
    json.remove_prefix(1);
    if (c != '\\') {
      text.push_back(c);
      continue;
    }
    const char name = json.front();  // there is one: the expression that found the string asks for it
    json.remove_prefix(1);
    if (name == 'u') {
      append(text, take_escaped(json));
    } else {
      const size_t at = kNames.find(name);
      text.push_back(at == std::string_view::npos ? name : kCharacters[at]);
    }
  }
  return text;
}

// Reads a JSON object of strings and their integers.
std::unordered_map<std::string, int64_t> vocabulary(const std::string& json) {
  static const re2::RE2 opening(R"(\s*\{\s*)"), entry(R"re("((?:[^"\\]|\\.)*)"\s*:\s*(\d+)\s*)re"), comma(R"(,\s*)"),
      closing(R"(\}\s*)");
  re2::StringPiece rest(json), token;
  std::unordered_map<std::string, int64_t> ids;
  int64_t id = 0;
  bool more = re2::RE2::Consume(&rest, opening);
  while (more && re2::RE2::Consume(&rest, entry, &token, &id)) {
    ids[plain({token.data(), token.size()})] = id;
    more = re2::RE2::Consume(&rest, comma);
  }
  TORCH_CHECK_VALUE(re2::RE2::FullMatch(rest, closing) && !ids.empty(),
                    "vocab must be a JSON object of tokens and their ids; what follows is none of it: '",
                    std::string(rest.substr(0, 32)), "'");
  return ids;
}

// Gives the character that stands for a byte in tokens: itself where it can be seen, else one behind Latin's.
char32_t visible(int byte) {
  const auto is_visible = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD); };
  if (is_visible(byte)) return static_cast<char32_t>(byte);
  char32_t hidden = 0x100;
  for (int before = 0; before < byte; ++before) hidden += is_visible(before) ? 0 : 1;
  return hidden;
}

std::string visible_text(int byte) {
  std::string text;
  append(text, visible(byte));
  return text;
}

// ---- The words of a text

// Gives the expression of words: such of letters or digits, others, and white space, which is a group. White space is
// as Unicode has it; RE2's \s is that of ASCII.
std::string words(const std::string& letters, const std::string& digits, const std::string& before_others) {
  const std::string white_space = R"(\s\v\x{85}\p{Z})";
  return "'s|'t|'re|'ve|'m|'ll|'d|" + letters + "|" + digits + "|" + before_others + "[^" + white_space +
         R"(\p{L}\p{N}]+|([)" + white_space + "]+)";
}

const re2::RE2& words_of_gpt2() {
  static const re2::RE2 expression(words(R"( ?\p{L}+)", R"( ?\p{N}+)", " ?"));
  return expression;
}

const re2::RE2& words_of_clip() {
  static const re2::RE2 expression(words(R"(\p{L}+)", R"(\p{N})", ""));
  return expression;
}

// Gives a text in Unicode's composed form, and in small letters.
std::string composed_and_small(std::string_view text) {
  utf8proc_uint8_t* found = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &found, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(found, &std::free);
  TORCH_CHECK_VALUE(size >= 0, "a text cannot be composed: ", utf8proc_errmsg(size));
  std::string_view composed(reinterpret_cast<const char*>(found), size);
  std::u32string small;
  while (!composed.empty()) append_lower_case(small, take_code_point(composed));
  return utf8(small);
}

size_t size_of_last_character(std::string_view text) {
  size_t size = 1;
  while (size < text.size() && (text[text.size() - size] & 0xC0) == 0x80) ++size;
  return size;
}

}  // namespace

BytePairs::BytePairs(Attributes attributes) : attributes_(std::move(attributes)), ids_(vocabulary(attributes_.vocab)) {
  TORCH_CHECK_VALUE(attributes_.padding_length == -1 || attributes_.padding_length > 0,
                    "padding_length must be -1 or more than 0, not ", attributes_.padding_length);
  unk_ = make_id(attributes_.unk_token);
  bos_ = make_id(attributes_.bos_token);
  eos_ = make_id(attributes_.eos_token);
  pad_ = attributes_.pad_token.empty() ? 0 : make_id(attributes_.pad_token);
  for (int byte = 0; byte < 256; ++byte) {
    bytes_[byte] = id_or_unknown(visible_text(byte));
    last_bytes_[byte] = attributes_.is_clip ? id_or_unknown(visible_text(byte) + kWordEnd) : bytes_[byte];
  }
  read_merges();
  read_added_tokens();
  std::vector<std::string> tokens;
  for (const auto& [token, id] : whole_) tokens.push_back(re2::RE2::QuoteMeta(token));
  std::ranges::sort(tokens,
                    [](const auto& x, const auto& y) { return std::pair(y.size(), x) < std::pair(x.size(), y); });
  std::string any;
  for (const std::string& token : tokens) any += (any.empty() ? "(" : "|") + token;
  find_whole_ = std::make_unique<re2::RE2>(any + ")", re2::RE2::Quiet);
  TORCH_CHECK_VALUE(find_whole_->ok(), "the added tokens cannot be sought: ", find_whole_->error());
}

// Gives the id of a token that is found as a whole. One that the vocabulary does not have comes behind all others.
int64_t BytePairs::make_id(const std::string& token) {
  return whole_[token] = ids_.try_emplace(token, static_cast<int64_t>(ids_.size())).first->second;
}

int64_t BytePairs::id_or_unknown(const std::string& token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? unk_ : found->second;
}

void BytePairs::read_merges() {
  int64_t rank = 0;
  for_each_line(attributes_.merges, [&](std::string_view line) {
    if (rank == 0 && line.starts_with("#version")) return;
    const size_t space = line.find(' ');
    TORCH_CHECK_VALUE(space != std::string_view::npos, "a line of merges must hold two tokens: '", std::string(line),
                      "'");
    const std::string first(line.substr(0, space)), second(line.substr(space + 1));
    const auto id = [&](const std::string& token) {
      const auto found = ids_.find(token);
      TORCH_CHECK_VALUE(found != ids_.end(), "the vocabulary has no token '", token, "', which merges have");
      return found->second;
    };
    const int64_t first_id = id(first), second_id = id(second);
    merges_[first_id].try_emplace(second_id, Merge{rank++, id(first + second)});
  });
}

// Reads the added tokens: each line is a token, "=" and its id.
void BytePairs::read_added_tokens() {
  for_each_line(attributes_.added_token, [&](std::string_view line) {
    const size_t sign = line.rfind('=');
    const auto id = sign == std::string_view::npos ? std::nullopt : integer(line.substr(sign + 1));
    TORCH_CHECK_VALUE(id && sign > 0, "a line of added_token must hold a token, '=' and its id: '", std::string(line),
                      "'");
    whole_[std::string(line.substr(0, sign))] = *id;
  });
}

const BytePairs::Merge* BytePairs::merge_of(int64_t first, int64_t second) const {
  const auto row = merges_.find(first);
  if (row == merges_.end()) return nullptr;
  const auto found = row->second.find(second);
  return found == row->second.end() ? nullptr : &found->second;
}

// Adds the ids of a word's tokens: its bytes', of which pairs are merged.
void BytePairs::add_word(std::string_view word, std::vector<int64_t>& ids) const {
  std::vector<int64_t> tokens;
  for (const char byte : word) tokens.push_back(bytes_[static_cast<uint8_t>(byte)]);
  if (!tokens.empty()) tokens.back() = last_bytes_[static_cast<uint8_t>(word.back())];
  merge_pairs(tokens, [&](int64_t first, int64_t second) -> std::optional<Merged<int64_t>> {
    const Merge* merge = merge_of(first, second);
    if (!merge) return {};
    return Merged<int64_t>{.rank = static_cast<double>(merge->rank), .token = merge->id};
  });
  ids.insert(ids.end(), tokens.begin(), tokens.end());
}

// Adds the ids of the words of a text. Of the white space before a word, GPT-2 puts the last character into the word,
// and CLIP leaves out all.
void BytePairs::add_words(std::string_view given, std::vector<int64_t>& ids) const {
  const std::string changed = attributes_.is_clip ? composed_and_small(given) : "";
  const std::string_view text = attributes_.is_clip ? changed : given;
  const re2::RE2& words = attributes_.is_clip ? words_of_clip() : words_of_gpt2();
  for (size_t begin = 0; begin < text.size();) {
    std::array<re2::StringPiece, 2> found;  // the word, and the same where it is white space
    const bool is_word = words.Match({text.data(), text.size()}, begin, text.size(), re2::RE2::ANCHOR_START,
                                     found.data(), static_cast<int>(found.size()));
    TORCH_CHECK_VALUE(is_word, "a string is not valid UTF-8");
    std::string_view word(found[0].data(), found[0].size());
    const bool is_space = found[1].data() != nullptr;
    if (is_space && begin + word.size() < text.size()) {
      const size_t last = size_of_last_character(word);
      if (last < word.size()) word.remove_suffix(last);
    }
    begin += word.size();
    if (!is_space || !attributes_.is_clip) add_word(word, ids);
  }
}

std::vector<int64_t> BytePairs::ids(std::string_view text) const {
  std::vector<int64_t> ids;
  re2::StringPiece rest(text.data(), text.size()), token;
  while (!rest.empty()) {
    const char* const begin = rest.data();
    const bool found = re2::RE2::FindAndConsume(&rest, *find_whole_, &token);
    add_words({begin, found ? static_cast<size_t>(token.data() - begin) : rest.size()}, ids);
    if (!found) break;
    ids.push_back(whole_.at(std::string(token)));
  }
  const int64_t marks = attributes_.has_marks ? 2 : 0, most = attributes_.padding_length;
  if (most > 0 && std::ssize(ids) > most - marks) ids.resize(std::max<int64_t>(0, most - marks));
  if (attributes_.has_marks) {
    ids.insert(ids.begin(), bos_);
    ids.push_back(eos_);
  }
  if (most > 0 && std::ssize(ids) > most) ids.resize(most);
  return ids;
}

namespace {

// Gives the ids of each text's tokens, padded to one length, and ones where they are.
std::tuple<at::Tensor, at::Tensor> byte_pairs(const Pool& pool, const at::Tensor& text,
                                              const c10::intrusive_ptr<BytePairs>& pairs) {
  const at::Tensor in = on_host(text);
  std::vector<std::vector<int64_t>> rows;
  size_t longest = std::max<int64_t>(0, pairs->attributes().padding_length);
  for (int64_t i = 0; i < in.numel(); ++i) {
    rows.push_back(pairs->ids(pool->at(in.const_data_ptr<int64_t>()[i])));
    longest = std::max(longest, rows.back().size());
  }
  std::vector<int64_t> sizes = in.sizes().vec();
  sizes.push_back(static_cast<int64_t>(longest));
  const at::Tensor ids = at::full(sizes, pairs->pad(), at::kLong), mask = at::zeros(sizes, at::kLong);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::ranges::copy(rows[i], ids.mutable_data_ptr<int64_t>() + i * longest);
    std::fill_n(mask.mutable_data_ptr<int64_t>() + i * longest, rows[i].size(), 1);
  }
  return {ids.to(text.device()), mask.to(text.device())};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  register_string_pool();
  register_saved_class<BytePairs>(m, "BytePairs");
  m.def(
      "byte_pairs(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor text, "
      "__torch__.torch.classes.onnx_torch.BytePairs pairs) -> (Tensor, Tensor)");
  m.impl("byte_pairs", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(byte_pairs));
}

}  // namespace onnxtorch
