// The search that takes the likeliest token each time, or draws one.
#include <ATen/ops/arange.h>

#include <algorithm>

#include "language/search.h"
#include "language/sequences.h"

namespace onnxtorch {
namespace {

class Sampling : public Search {
 public:
  Sampling(Begun begun, const GenerationOptions& options, const at::Generator& generator)
      : state_(std::move(begun.state)), logits_(std::move(begun.logits)), choice_(options, begun.prompts, generator) {
    const int64_t each = options.num_return_sequences;
    for (const Tokens& prompt : begun.prompts) rows_.insert(rows_.end(), static_cast<size_t>(each), prompt);
    if (each > 1) {
      const at::Tensor repeated = at::arange(state_.batch_size(), at::kLong).repeat_interleave(each);
      state_.reorder(repeated);
      logits_ = logits_.index_select(0, repeated);
    }
    ended_.resize(rows_.size());
  }

  bool done() const override { return generated_ == choice_.options().max_new_tokens || all_ended(); }

  std::vector<Tokens> step() override {
    choice_.check_cancel();
    if (generated_ > 0) logits_ = state_.append(column(last_), {}, false);
    choice_.check_cancel();
    last_ = choice_.choose(choice_.process(rows_, logits_));
    ++generated_;
    std::vector<Tokens> got(rows_.size());
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (ended_[row]) last_[row] = choice_.padding();
      rows_[row].push_back(last_[row]);
      if (ended_[row]) continue;
      got[row].push_back(last_[row]);
      if (choice_.ends(rows_[row])) ended_[row] = rows_[row].size();
    }
    return got;
  }

  std::vector<Tokens> sequences() const override {
    std::vector<Tokens> result = rows_;
    for (size_t row = 0; row < result.size(); ++row) {
      if (ended_[row]) result[row].resize(*ended_[row]);
    }
    return result;
  }

 private:
  bool all_ended() const {
    return std::ranges::all_of(ended_, [](const auto& length) { return length.has_value(); });
  }

  DecoderState state_;
  at::Tensor logits_;
  Choice choice_;
  std::vector<Tokens> rows_;                  // filled up with padding where they have ended
  std::vector<std::optional<size_t>> ended_;  // the length at which each has ended
  Tokens last_;
  int64_t generated_ = 0;
};

}  // namespace

std::unique_ptr<Search> sampling(Begun begun, const GenerationOptions& options, const at::Generator& generator) {
  return std::make_unique<Sampling>(std::move(begun), options, generator);
}

}  // namespace onnxtorch
