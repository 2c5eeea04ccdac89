// The texts that ids of word pieces stand for, as onnxruntime-extensions' BertTokenizerDecoder gives them. Made once from
// the node's attributes.
#pragma once

#include <torch/custom_class.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <vector>

namespace onnxtorch {

class WordPieceDecoder : public torch::CustomClassHolder {
 public:
  // The attributes, named as in the schema.
  struct Attributes {
    std::string vocab_file, unk_token, sep_token, pad_token, cls_token, mask_token, suffix_indicator;
    bool skip_special_tokens, clean_up_tokenization_spaces;

    static auto fields(auto& of) {
      return std::tie(of.vocab_file, of.unk_token, of.sep_token, of.pad_token, of.cls_token, of.mask_token,
                      of.suffix_indicator, of.skip_special_tokens, of.clean_up_tokenization_spaces);
    }
  };

  explicit WordPieceDecoder(Attributes attributes);
  WordPieceDecoder(const WordPieceDecoder&) = delete;
  WordPieceDecoder& operator=(const WordPieceDecoder&) = delete;
  const Attributes& attributes() const { return attributes_; }

  // Gives the text of so many ids: their pieces, with a space before each that begins a word.
  std::string text(std::span<const int64_t> ids) const;

 private:
  const Attributes attributes_;
  std::vector<std::string_view> pieces_;  // which lie in the attributes
  std::unordered_set<std::string_view> special_;
};

}  // namespace onnxtorch
