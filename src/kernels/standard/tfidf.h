// TfIdfVectorizer: how often each n-gram of a pool occurs in a row of tokens. Made once from the node's attributes.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace onnxtorch {

// A trie of sequences of tokens. The root is node 0.
class NgramTrie {
 public:
  static constexpr int64_t kNone = -1;

  void insert(const int64_t* tokens, int64_t length, int64_t ngram);
  int64_t child(int64_t node, int64_t token) const;            // or kNone
  int64_t ngram(int64_t node) const { return ngrams_[node]; }  // that ends here, or kNone

 private:
  struct Edge {
    int64_t node, token;
    bool operator==(const Edge&) const = default;
  };
  struct Hash {
    size_t operator()(const Edge& edge) const;
  };

  std::unordered_map<Edge, int64_t, Hash> children_;
  std::vector<int64_t> ngrams_{kNone};
};

class TfIdfVectorizer : public torch::CustomClassHolder {
 public:
  // The attributes, named as in ONNX. The pool holds pool_int64s, or the ids of pool_strings; weights may be empty.
  struct Attributes {
    std::string mode;
    int64_t min_gram_length, max_gram_length, max_skip_count;
    std::vector<int64_t> ngram_counts, ngram_indexes, pool;
    std::vector<double> weights;
  };

  explicit TfIdfVectorizer(Attributes attributes);
  const Attributes& attributes() const { return attributes_; }

  // Turns [C] or [N, C] tokens, or ids of strings, into the counts of the n-grams.
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  void count(const int64_t* tokens, int64_t length, std::vector<int64_t>& counts) const;
  void weigh(const std::vector<int64_t>& counts, float* y) const;

  Attributes attributes_;
  NgramTrie trie_;
  int64_t width_;
};

}  // namespace onnxtorch
