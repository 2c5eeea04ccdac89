// The tokenizer of GPT-2 and of its kin, as onnxruntime-extensions has it: the words of a text, and of each word's bytes
// the pairs put together that a list of merges has, the first of the list first. Made once from the node's attributes.
#pragma once

#include <re2/re2.h>
#include <torch/custom_class.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace onnxtorch {

class BytePairs : public torch::CustomClassHolder {
 public:
  // `vocab`, `merges`, `added_token` and `padding_length` are named as in the schema.
  struct Attributes {
    std::string vocab, merges, added_token;
    std::string unk_token, bos_token, eos_token, pad_token;  // a pad_token of "" is the id 0
    bool has_marks;                                          // bos_token and eos_token are put around a text
    bool is_clip;  // words of small letters without white space, the last byte of which is marked
    int64_t padding_length;

    static auto fields(auto& of) {
      return std::tie(of.vocab, of.merges, of.added_token, of.unk_token, of.bos_token, of.eos_token, of.pad_token,
                      of.has_marks, of.is_clip, of.padding_length);
    }
  };

  explicit BytePairs(Attributes attributes);
  BytePairs(const BytePairs&) = delete;
  BytePairs& operator=(const BytePairs&) = delete;
  const Attributes& attributes() const { return attributes_; }

  // Gives the ids of a text's tokens, with marks around them where there are any.
  std::vector<int64_t> ids(std::string_view text) const;

  int64_t pad() const { return pad_; }

 private:
  struct Merge {
    int64_t rank, id;
  };

  void read_merges();
  void read_added_tokens();
  int64_t make_id(const std::string& token);
  int64_t id_or_unknown(const std::string& token) const;
  const Merge* merge_of(int64_t first, int64_t second) const;
  void add_words(std::string_view text, std::vector<int64_t>& ids) const;
  void add_word(std::string_view word, std::vector<int64_t>& ids) const;

  const Attributes attributes_;
  std::unordered_map<std::string, int64_t> ids_;
  std::unordered_map<std::string, int64_t> whole_;  // of tokens that are found in a text before its words are
  std::unique_ptr<re2::RE2> find_whole_;
  std::unordered_map<int64_t, std::unordered_map<int64_t, Merge>> merges_;  // by the first id and the second
  std::array<int64_t, 256> bytes_, last_bytes_;                             // the ids of bytes, and of a word's last
  int64_t unk_, bos_, eos_, pad_;
};

}  // namespace onnxtorch
