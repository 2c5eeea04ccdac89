// The tokenizer sentencepiece, as onnxruntime-extensions has it: the pieces of a text, and the text of pieces. Made once
// from the node's attribute.
#pragma once

#include <torch/custom_class.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "kernels/standard/prefix_tree.h"
#include "kernels/standard/sentence_normalizer.h"

namespace onnxtorch {

namespace sentencepiece {
class Model;  // sentence_piece_model.proto
}

class SentencePieces : public torch::CustomClassHolder {
 public:
  // The bytes of a model that sentencepiece has trained, or these in base64.
  struct Attributes {
    std::string model;

    static auto fields(auto& of) { return std::tie(of.model); }
  };

  // A piece, and where in the text what it stands for begins.
  struct Token {
    int64_t id, begin;
  };

  explicit SentencePieces(Attributes attributes);
  ~SentencePieces() override;
  SentencePieces(const SentencePieces&) = delete;
  SentencePieces& operator=(const SentencePieces&) = delete;
  const Attributes& attributes() const { return attributes_; }

  std::vector<Token> tokens(std::string_view text) const;
  std::string text(std::span<const int64_t> ids) const;

  // The ids of the marks at a text's ends; -1 where the model has none.
  int64_t bos() const;
  int64_t eos() const;

 private:
  // A part of the normalized text, and its piece.
  struct Part {
    std::string_view text;
    int64_t id;
  };
  // A character, or a text that a user has defined, which is not merged.
  struct Symbol {
    std::string_view text;
    bool is_user_defined;
    bool operator==(const Symbol&) const = default;
  };
  using Ids = std::unordered_map<std::string_view, int64_t>;

  void read_pieces();
  int64_t id_of(std::string_view piece) const;
  int64_t control(std::string_view piece) const;
  Symbol first_symbol(std::string_view text) const;
  std::vector<Part> parts(std::string_view text) const;
  std::vector<Part> likeliest_parts(std::string_view text) const;
  std::vector<Part> merged_parts(std::string_view text) const;
  std::vector<Part> characters(std::string_view text) const;
  std::vector<Part> words(std::string_view text) const;
  std::string text_of(int64_t id, bool is_at_begin, bool& took_space) const;

  const Attributes attributes_;
  const std::unique_ptr<const sentencepiece::Model> model_;
  Ids ids_, reserved_;          // of pieces that a text is made of, and of marks and bytes
  std::vector<int64_t> bytes_;  // the ids of bytes; empty without byte_fallback
  int64_t unknown_ = -1;
  float lowest_score_ = std::numeric_limits<float>::max(), highest_score_ = std::numeric_limits<float>::min();
  std::unique_ptr<const PrefixTree> pieces_, user_defined_;
  std::unique_ptr<const SentenceNormalizer> normalize_, denormalize_;  // the last may be none
};

}  // namespace onnxtorch
