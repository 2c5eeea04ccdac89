// The text in which sentencepiece looks for pieces: characters are replaced by a model's rules, spaces that are too many
// left out, and a sign put in the place of each other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/standard/prefix_tree.h"

namespace onnxtorch {

class SentenceNormalizer {
 public:
  // Named as in sentencepiece's NormalizerSpec and TrainerSpec.
  struct Options {
    std::string precompiled_charsmap;
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, treat_whitespace_as_suffix;
  };

  // A text, and for each of its bytes and for its end where that comes from in the text that was given.
  struct Normalized {
    std::string text;
    std::vector<int64_t> origins;
  };

  // Texts of `kept`, which must outlive this, are not changed; null stands for none.
  SentenceNormalizer(Options options, const PrefixTree* kept);
  SentenceNormalizer(const SentenceNormalizer&) = delete;
  SentenceNormalizer& operator=(const SentenceNormalizer&) = delete;

  Normalized operator()(std::string_view text) const;

 private:
  // What the start of a text becomes, and how many bytes that takes.
  struct Step {
    std::string_view becomes;
    size_t size;
  };

  Step step(std::string_view text) const;
  Step rule(std::string_view text) const;
  uint32_t unit(uint64_t at) const;

  const Options options_;
  const PrefixTree* const kept_;
  std::string_view units_, results_;  // the rules: a double array of their left sides, and their right sides
};

}  // namespace onnxtorch
