// The texts that ids of tokens stand for, as onnxruntime-extensions' BpeDecoder gives them. Made once from the node's
// attributes.
#pragma once

#include <torch/custom_class.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace onnxtorch {

class BytePairDecoder : public torch::CustomClassHolder {
 public:
  // The attributes, named as in the schema.
  struct Attributes {
    std::string id_vocab, byte_decoder, added_tokens, all_special_ids, unk_token;
    bool skip_special_tokens, whitespace_token;

    static auto fields(auto& of) {
      return std::tie(of.id_vocab, of.byte_decoder, of.added_tokens, of.all_special_ids, of.unk_token,
                      of.skip_special_tokens, of.whitespace_token);
    }
  };

  explicit BytePairDecoder(Attributes attributes);
  BytePairDecoder(const BytePairDecoder&) = delete;
  BytePairDecoder& operator=(const BytePairDecoder&) = delete;
  const Attributes& attributes() const { return attributes_; }

  // Gives the text of so many ids. Bytes that are no UTF-8 become U+FFFD.
  std::string text(std::span<const int64_t> ids) const;

 private:
  std::string bytes(int64_t id) const;
  std::string bytes_of_visible(std::string_view token) const;

  const Attributes attributes_;
  std::vector<std::string> tokens_;
  std::unordered_map<char32_t, char> bytes_;  // by the characters that stand for them
  std::unordered_map<int64_t, std::string> added_;
  std::unordered_set<int64_t> special_;
  bool is_sentencepiece_;  // the tokens are text, with a sign in place of spaces
};

}  // namespace onnxtorch
