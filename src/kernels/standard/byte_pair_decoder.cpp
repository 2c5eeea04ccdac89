#include "kernels/standard/byte_pair_decoder.h"

#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "kernels/standard/saved_attributes.h"
#include "kernels/standard/texts.h"

namespace onnxtorch {
namespace {

constexpr char32_t kCodeOfSpaceSign = 0x2581;

// An integer and what follows it behind a tab.
struct Line {
  int64_t number;
  std::string_view text;
};

std::vector<Line> numbered_lines(const std::string& lines, const char* attribute) {
  std::vector<Line> result;
  for_each_line(lines, [&](std::string_view line) {
    const size_t tab = std::min(line.find('\t'), line.size());
    const auto number = integer(line.substr(0, tab));
    TORCH_CHECK_VALUE(number, "a line of ", attribute, " must begin with an integer: '", std::string(line), "'");
    result.push_back({*number, line.substr(std::min(tab + 1, line.size()))});
  });
  return result;
}

// Tells whether a token of sentencepiece is a byte: "<0x0A>".
std::optional<char> byte_named(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return {};
  const auto value = integer(token.substr(3, 2), 16);
  return value ? std::optional(static_cast<char>(*value)) : std::nullopt;
}

// Gives the number of bytes at the start of a text that could begin a character of UTF-8 that is cut off there; 1 where
// none could.
size_t size_of_cut_off(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const int first = byte(0), second = byte(1);
  const int lowest = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const int highest = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (first < 0xE0 || first > 0xF4 || second < lowest || second > highest) return 1;
  return first >= 0xF0 && (byte(2) & 0xC0) == 0x80 ? 3 : 2;
}

// Puts U+FFFD in the place of each character that is cut off, and of each byte that begins none.
std::string valid_utf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    utf8proc_int32_t code = 0;
    const auto size = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(bytes.data()),
                                       static_cast<utf8proc_ssize_t>(bytes.size()), &code);
    append(text, size > 0 ? static_cast<char32_t>(code) : 0xFFFD);
    bytes.remove_prefix(size > 0 ? size : size_of_cut_off(bytes));
  }
  return text;
}

}  // namespace

BytePairDecoder::BytePairDecoder(Attributes attributes) : attributes_(std::move(attributes)) {
  std::string_view rest = attributes_.id_vocab;  // a token may be an empty line
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    tokens_.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  for (const auto& [code, text] : numbered_lines(attributes_.byte_decoder, "byte_decoder")) {
    const auto byte = integer(text);
    TORCH_CHECK_VALUE(code >= 0 && byte && *byte >= 0 && *byte < 256,
                      "a line of byte_decoder must hold a character's number, a tab and a byte, not '",
                      std::string(text), "'");
    bytes_[static_cast<char32_t>(code)] = static_cast<char>(*byte);
  }
  TORCH_CHECK_VALUE(!tokens_.empty() && !bytes_.empty(), "id_vocab and byte_decoder must not be empty");
  for (const auto& [id, text] : numbered_lines(attributes_.added_tokens, "added_tokens")) added_[id] = text;
  for (const auto& [id, text] : numbered_lines(attributes_.all_special_ids, "all_special_ids")) special_.insert(id);
  is_sentencepiece_ = bytes_.contains(kCodeOfSpaceSign);
}

// Gives the bytes of a token's characters. One that stands for none is itself where it is a byte; else the token is not
// known.
std::string BytePairDecoder::bytes_of_visible(std::string_view token) const {
  std::string bytes;
  while (!token.empty()) {
    const char32_t c = take_code_point(token);
    const auto found = bytes_.find(c);
    if (found != bytes_.end()) {
      bytes.push_back(found->second);
    } else if (c <= 0xFF) {
      bytes.push_back(static_cast<char>(c));
    } else if (!attributes_.skip_special_tokens) {
      return attributes_.unk_token;
    }
  }
  return bytes;
}

std::string BytePairDecoder::bytes(int64_t id) const {
  const auto added = added_.find(id);
  if (added != added_.end()) return added->second;
  if (id < 0 || id >= std::ssize(tokens_)) return attributes_.skip_special_tokens ? "" : attributes_.unk_token;
  const std::string& token = tokens_[id];
  if (!is_sentencepiece_) return bytes_of_visible(token);
  if (const auto byte = byte_named(token)) return {*byte};
  return replaced(token, kSpaceSign, " ");
}

std::string BytePairDecoder::text(std::span<const int64_t> ids) const {
  std::string all;
  bool was_special = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_special = special_.contains(ids[i]);
    const bool is_apart = is_special && attributes_.whitespace_token;
    if (!is_special || !attributes_.skip_special_tokens) {
      if (is_apart && i > 0 && !was_special) all.push_back(' ');
      all += bytes(ids[i]);
      if (is_apart && i + 1 < ids.size()) all.push_back(' ');
    }
    was_special = is_special;
  }
  return valid_utf8(all);
}

namespace {

// Gives the text of each row of ids.
at::Tensor byte_pair_texts(const Pool& pool, const at::Tensor& ids,
                           const c10::intrusive_ptr<BytePairDecoder>& decoder) {
  TORCH_CHECK_VALUE(ids.dim() >= 1, "ids must have a dimension at least");
  const at::Tensor in = on_host(ids);
  const int64_t length = in.size(-1);
  std::vector<int64_t> sizes(in.sizes().begin(), in.sizes().end() - 1);
  if (sizes.empty()) sizes.push_back(1);
  const at::Tensor texts = at::empty(sizes, at::kLong);
  for (int64_t row = 0; row < texts.numel(); ++row) {
    const std::span of(in.const_data_ptr<int64_t>() + row * length, static_cast<size_t>(length));
    texts.mutable_data_ptr<int64_t>()[row] = pool->intern(decoder->text(of));
  }
  return texts.to(ids.device());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  register_string_pool();
  register_saved_class<BytePairDecoder>(m, "BytePairDecoder");
  m.def(
      "byte_pair_texts(__torch__.torch.classes.onnx_torch.StringPool pool, Tensor ids, "
      "__torch__.torch.classes.onnx_torch.BytePairDecoder decoder) -> Tensor");
  m.impl("byte_pair_texts", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(byte_pair_texts));
}

}  // namespace onnxtorch
