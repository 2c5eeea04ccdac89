#include "kernels/standard/tfidf.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "base/parallel.h"

namespace onnxtorch {

size_t NgramTrie::Hash::operator()(const Edge& edge) const {
  return static_cast<size_t>(edge.token) + static_cast<size_t>(edge.node) * 0x9e3779b97f4a7c15u;
}

void NgramTrie::insert(const int64_t* tokens, int64_t length, int64_t ngram) {
  int64_t node = 0;
  for (int64_t i = 0; i < length; ++i) {
    const auto [edge, is_new] = children_.try_emplace({node, tokens[i]}, static_cast<int64_t>(ngrams_.size()));
    if (is_new) ngrams_.push_back(kNone);
    node = edge->second;
  }
  ngrams_[node] = ngram;
}

int64_t NgramTrie::child(int64_t node, int64_t token) const {
  const auto found = children_.find({node, token});
  return found == children_.end() ? kNone : found->second;
}

TfIdfVectorizer::TfIdfVectorizer(Attributes attributes) : attributes_(std::move(attributes)) {
  const auto& [mode, min_length, max_length, max_skip, starts, columns, pool, weights] = attributes_;
  TORCH_CHECK_VALUE(mode == "TF" || mode == "IDF" || mode == "TFIDF",
                    "TfIdfVectorizer: mode is TF, IDF or TFIDF, not '", mode, "'");
  TORCH_CHECK_VALUE(!columns.empty() && *std::min_element(columns.begin(), columns.end()) >= 0,
                    "TfIdfVectorizer: ngram_indexes is empty or has a negative one");
  TORCH_CHECK_VALUE(weights.empty() || weights.size() == columns.size(), "TfIdfVectorizer: ", weights.size(),
                    " weights for ", columns.size(), " ngram_indexes");
  width_ = *std::max_element(columns.begin(), columns.end());
  TORCH_CHECK_VALUE(width_ < std::numeric_limits<int32_t>::max(), "TfIdfVectorizer: an n-gram has index ", width_);
  ++width_;

  int64_t ngram = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto length = static_cast<int64_t>(i + 1);
    const int64_t end = i + 1 < starts.size() ? starts[i + 1] : static_cast<int64_t>(pool.size());
    TORCH_CHECK_VALUE(0 <= starts[i] && starts[i] <= end && end <= static_cast<int64_t>(pool.size()) &&
                          (end - starts[i]) % length == 0,
                      "TfIdfVectorizer: ngram_counts does not divide the pool into n-grams of length ", length);
    for (int64_t start = starts[i]; start < end; start += length, ++ngram) {
      if (min_length <= length && length <= max_length) trie_.insert(pool.data() + start, length, ngram);
    }
  }
  TORCH_CHECK_VALUE(ngram == static_cast<int64_t>(columns.size()), "TfIdfVectorizer: ", columns.size(),
                    " ngram_indexes for the ", ngram, " n-grams of the pool");
}

at::Tensor TfIdfVectorizer::operator()(const at::Tensor& x) const {
  TORCH_CHECK_VALUE(x.dim() == 1 || x.dim() == 2, "TfIdfVectorizer takes a tensor of shape [C] or [N, C], not ",
                    x.sizes());
  const at::Tensor tokens = x.to(at::kCPU, at::kLong).contiguous();
  const int64_t length = x.size(-1);
  const int64_t rows = x.dim() == 2 ? x.size(0) : 1;
  at::Tensor y = at::zeros({rows, width_}, at::kFloat);
  const int64_t* const first = tokens.const_data_ptr<int64_t>();
  float* const out = y.mutable_data_ptr<float>();
  constexpr int64_t kCost = 64;  // of a token
  parallel_for(rows, kCost * length, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> counts(attributes_.ngram_indexes.size());
    for (int64_t row = begin; row < end; ++row) {
      std::fill(counts.begin(), counts.end(), 0);
      count(first + row * length, length, counts);
      weigh(counts, out + row * width_);
    }
  });
  return (x.dim() == 2 ? y : y.squeeze(0)).to(x.device());
}

void TfIdfVectorizer::count(const int64_t* tokens, int64_t length, std::vector<int64_t>& counts) const {
  for (int64_t step = 1; step <= std::min(attributes_.max_skip_count, length) + 1; ++step) {
    // Skipping changes nothing about a single token: those are counted once.
    const int64_t shortest = std::max<int64_t>(attributes_.min_gram_length, step == 1 ? 1 : 2);
    for (int64_t start = 0; start + (shortest - 1) * step < length; ++start) {
      int64_t node = 0;
      for (int64_t n = 1, i = start; n <= attributes_.max_gram_length && i < length; ++n, i += step) {
        node = trie_.child(node, tokens[i]);
        if (node == NgramTrie::kNone) break;
        const int64_t ngram = trie_.ngram(node);
        if (n >= shortest && ngram != NgramTrie::kNone) ++counts[ngram];
      }
    }
  }
}

void TfIdfVectorizer::weigh(const std::vector<int64_t>& counts, float* y) const {
  const bool once = attributes_.mode == "IDF";
  const bool weighted = attributes_.mode != "TF" && !attributes_.weights.empty();
  for (size_t i = 0; i < counts.size(); ++i) {
    const auto times = static_cast<float>(once ? std::min<int64_t>(counts[i], 1) : counts[i]);
    y[attributes_.ngram_indexes[i]] += weighted ? times * static_cast<float>(attributes_.weights[i]) : times;
  }
}

namespace {

using Vectorizer = c10::intrusive_ptr<TfIdfVectorizer>;
// A state: mode; {min_gram_length, max_gram_length, max_skip_count}, ngram_counts, ngram_indexes, pool; weights
using State = std::tuple<std::string, std::vector<std::vector<int64_t>>, std::vector<double>>;

constexpr auto get_state = [](const Vectorizer& self) -> State {
  const auto& [mode, min_length, max_length, max_skip, starts, columns, pool, weights] = self->attributes();
  return {mode, {{min_length, max_length, max_skip}, starts, columns, pool}, weights};
};

constexpr auto from_state = [](const State& state) {
  const auto& [mode, ints, weights] = state;
  TORCH_CHECK(ints.size() == 4 && ints[0].size() == 3, "not the state of a TfIdfVectorizer");
  return c10::make_intrusive<TfIdfVectorizer>(
      TfIdfVectorizer::Attributes{mode, ints[0][0], ints[0][1], ints[0][2], ints[1], ints[2], ints[3], weights});
};

at::Tensor tf_idf_vectorizer(const at::Tensor& x, const Vectorizer& vectorizer) { return (*vectorizer)(x); }

}  // namespace

TORCH_LIBRARY_FRAGMENT(onnx_torch, m) {
  m.class_<TfIdfVectorizer>("TfIdfVectorizer").def_static("make", from_state).def_pickle(get_state, from_state);

  // TfIdfVectorizer: [C] or [N, C] tokens, or ids of strings, to [M] or [N, M] counts of n-grams.
  m.def("tf_idf_vectorizer(Tensor x, __torch__.torch.classes.onnx_torch.TfIdfVectorizer vectorizer) -> Tensor");
  m.impl("tf_idf_vectorizer", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(tf_idf_vectorizer));
}

}  // namespace onnxtorch
