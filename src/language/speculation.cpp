// Speculative decoding: a smaller model proposes tokens, and the model reads all of them in one step. It keeps what it
// would have chosen itself, or drawn with the same probabilities.
#include <ATen/ATen.h>

#include <algorithm>

#include "language/search.h"

namespace onnxtorch {
namespace {

at::Tensor row(const Tokens& tokens) { return at::tensor(tokens, at::kLong).unsqueeze(0); }

class Speculation : public Search {
 public:
  Speculation(Begun begun, DecoderState draft, const GenerationOptions& options, const at::Generator& generator)
      : state_(std::move(begun.state)),
        draft_(std::move(draft)),
        choice_(options, begun.prompts, generator),
        sequence_(begun.prompts[0]),
        begin_(sequence_.size()),
        logits_(std::move(begun.logits)) {}

  bool done() const override { return ended_ || left() == 0; }

  std::vector<Tokens> step() override {
    choice_.check_cancel();
    const Tokens got = sequence_.size() == begin_ ? choice_.choose(scores_after({}, logits_)) : verified();
    choice_.check_cancel();
    Tokens kept;
    for (const int64_t token : got) {
      sequence_.push_back(token);
      kept.push_back(token);
      ended_ = choice_.ends(sequence_);
      if (ended_) break;
    }
    return {kept};
  }

  std::vector<Tokens> sequences() const override { return {sequence_}; }

 private:
  struct Proposal {
    Tokens tokens;
    std::vector<at::Tensor> probabilities;  // those that each was drawn from
  };

  int64_t left() const { return choice_.options().max_new_tokens - static_cast<int64_t>(sequence_.size() - begin_); }

  at::Tensor scores_after(const Tokens& more, const at::Tensor& logits) const {
    Tokens sequence = sequence_;
    sequence.insert(sequence.end(), more.begin(), more.end());
    return choice_.process({sequence}, logits);
  }

  // Gives what the draft has not read yet: one token, or two where all that it proposed was taken.
  Tokens unread() const { return {sequence_.begin() + draft_.length(), sequence_.end()}; }

  // Proposes at most one token fewer than may come, as the model itself gives one in any case.
  Proposal proposed() {
    const int64_t count = std::min(choice_.options().num_assistant_tokens, left() - 1);
    Proposal proposal;
    for (int64_t i = 0; i < count; ++i) {
      const Tokens read = i == 0 ? unread() : Tokens{proposal.tokens.back()};
      const at::Tensor scores = scores_after(proposal.tokens, draft_.append(row(read), {}, false));
      proposal.tokens.push_back(choice_.choose(scores)[0]);
      proposal.probabilities.push_back(scores.softmax(1));
    }
    return proposal;
  }

  // Gives what the model takes of a proposal, and the token that it gives after that.
  Tokens verified() {
    const Proposal proposal = proposed();
    Tokens read = proposal.tokens;
    read.insert(read.begin(), sequence_.back());
    const at::Tensor logits = state_.append(row(read), {}, true);
    Tokens taken;
    for (size_t i = 0;; ++i) {
      const at::Tensor scores = scores_after(taken, logits.select(1, static_cast<int64_t>(i)));
      if (i == proposal.tokens.size()) {
        taken.push_back(choice_.choose(scores)[0]);
        break;
      }
      const int64_t token = checked(proposal.tokens[i], proposal.probabilities[i], scores);
      taken.push_back(token);
      if (token != proposal.tokens[i]) break;
    }
    forget(static_cast<int64_t>(proposal.tokens.size()), static_cast<int64_t>(taken.size()) - 1);
    return taken;
  }

  // Gives the token that was proposed, or another one in its place: what is drawn then never is the same.
  int64_t checked(int64_t token, const at::Tensor& proposed, const at::Tensor& scores) {
    if (!choice_.options().do_sample) return choice_.choose(scores)[0];
    const at::Tensor wanted = scores.softmax(1);
    const auto ratio = wanted[0][token].item<double>() / proposed[0][token].item<double>();
    if (choice_.uniform() < ratio) return token;
    return choice_.draw_from((wanted - proposed).clamp_min(0), 1).item<int64_t>();
  }

  // Rewinds what was not taken. Both models have read what was proposed, but the last token the draft has not.
  void forget(int64_t proposed, int64_t taken) {
    state_.rewind(proposed - taken);
    draft_.rewind(std::max<int64_t>(proposed - 1 - taken, 0));
  }

  DecoderState state_, draft_;
  Choice choice_;
  Tokens sequence_;
  size_t begin_;
  at::Tensor logits_;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<Search> speculation(Begun begun, DecoderState draft, const GenerationOptions& options,
                                    const at::Generator& generator) {
  return std::make_unique<Speculation>(std::move(begun), std::move(draft), options, generator);
}

}  // namespace onnxtorch
