// The tokenizer of BERT, as onnxruntime-extensions has it: the words of a text, and for each the longest pieces that a
// vocabulary has. Made once from the node's attributes.
#pragma once

#include <torch/custom_class.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace onnxtorch {

class WordPieces : public torch::CustomClassHolder {
 public:
  // The attributes, named as in the schema.
  struct Attributes {
    std::string vocab_file, unk_token, sep_token, cls_token, suffix_indicator;
    bool do_lower_case, do_basic_tokenize, tokenize_chinese_chars, strip_accents;
    int64_t max_length;

    static auto fields(auto& of) {
      return std::tie(of.vocab_file, of.unk_token, of.sep_token, of.cls_token, of.suffix_indicator, of.do_lower_case,
                      of.do_basic_tokenize, of.tokenize_chinese_chars, of.strip_accents, of.max_length);
    }
  };

  explicit WordPieces(Attributes attributes);
  WordPieces(const WordPieces&) = delete;
  WordPieces& operator=(const WordPieces&) = delete;
  const Attributes& attributes() const { return attributes_; }

  // Gives the ids of a text's pieces, without marks at its ends.
  std::vector<int64_t> ids(std::string_view text) const;

  int64_t cls() const { return cls_; }
  int64_t sep() const { return sep_; }

 private:
  std::vector<std::u32string> words(std::string_view text) const;
  std::u32string normalized(std::string_view text) const;
  void add_pieces(const std::u32string& word, std::vector<int64_t>& ids) const;
  int64_t id_of(const std::string& token) const;

  const Attributes attributes_;
  std::unordered_map<std::string_view, int64_t> ids_;  // of the tokens, which lie in the attributes
  int64_t unk_, cls_, sep_;
};

}  // namespace onnxtorch
