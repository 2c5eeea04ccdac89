// The search for the texts that are likeliest as a whole, of several that are followed at the same time.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "language/search.h"
#include "language/sequences.h"

namespace onnxtorch {
namespace {

constexpr double kUnlikely = -1e9;  // the score of all beams but one at first, as they are the same
using EarlyStopping = GenerationOptions::EarlyStopping;

struct Beam {
  Tokens tokens;
  double score = 0;    // the sum of the tokens' log probabilities; of a finished one, divided by the length's power
  int64_t parent = 0;  // the index of the beam that it goes on from
};

// The beams of one prompt.
class Beams {
 public:
  Beams(const Tokens& prompt, const GenerationOptions& options)
      : options_(&options), prompt_length_(prompt.size()), running_(static_cast<size_t>(options.num_beams)) {
    for (size_t i = 0; i < running_.size(); ++i) running_[i] = {prompt, i == 0 ? 0 : kUnlikely, 0};
  }

  const std::vector<Beam>& running() const { return running_; }
  std::vector<Beam> finished() const { return finished_; }
  bool full() const { return finished_.size() == running_.size(); }
  bool can_improve() const { return can_improve_; }

  // Takes the `candidates` in their order: the first num_beams of them may finish, the others are there to go on with.
  // Tells whether any of them goes on.
  bool take(std::vector<Beam> candidates, const Choice& choice) {
    const size_t beams = running_.size();
    std::vector<Beam> going_on;
    std::vector<Beam> ending;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const bool ends = length(candidates[i]) == options_->max_new_tokens || choice.ends(candidates[i].tokens);
      if (!ends) {
        going_on.push_back(std::move(candidates[i]));
      } else {
        if (i < beams) finish(candidates[i]);
        ending.push_back(std::move(candidates[i]));
      }
    }
    const bool goes_on = !going_on.empty();
    // Where too few go on, what has ended fills the places, without a chance.
    for (size_t i = 0; going_on.size() < beams; ++i) {
      ending[i].score += kUnlikely;
      going_on.push_back(std::move(ending[i]));
    }
    going_on.resize(beams);
    running_ = std::move(going_on);
    can_improve_ = can_improve_ && may_improve();
    return goes_on;
  }

 private:
  int64_t length(const Beam& beam) const { return static_cast<int64_t>(beam.tokens.size() - prompt_length_); }
  double penalty(int64_t of_length) const { return std::pow(static_cast<double>(of_length), options_->length_penalty); }

  void finish(Beam beam) {
    if (!can_improve_ || (options_->early_stopping == EarlyStopping::True && full())) return;
    beam.score /= penalty(length(beam));
    const auto place = std::ranges::find_if(finished_, [&](const Beam& other) { return other.score < beam.score; });
    finished_.insert(place, std::move(beam));
    if (finished_.size() > running_.size()) finished_.pop_back();
  }

  // Tells whether the best of those that go on may still become better than the worst that has ended. Its length by
  // then is a guess.
  bool may_improve() const {
    if (!full()) return true;
    const bool longest = options_->early_stopping == EarlyStopping::Never && options_->length_penalty > 0;
    const double best = running_[0].score / penalty(longest ? options_->max_new_tokens : length(running_[0]));
    return best > finished_.back().score;
  }

  const GenerationOptions* options_;
  size_t prompt_length_;
  std::vector<Beam> running_, finished_;
  bool can_improve_ = true;
};

class BeamSearch : public Search {
 public:
  BeamSearch(Begun begun, const GenerationOptions& options, const at::Generator& generator)
      : state_(std::move(begun.state)), choice_(options, begun.prompts, generator) {
    for (const Tokens& prompt : begun.prompts) prompts_.emplace_back(prompt, choice_.options());
    const at::Tensor repeated = at::arange(state_.batch_size(), at::kLong).repeat_interleave(options.num_beams);
    state_.reorder(repeated);
    logits_ = begun.logits.index_select(0, repeated);
  }

  bool done() const override { return done_; }

  std::vector<Tokens> step() override {
    choice_.check_cancel();
    if (has_begun_) go_on();
    has_begun_ = true;
    choice_.check_cancel();
    const int64_t beams = choice_.options().num_beams;
    const auto count = static_cast<int64_t>(prompts_.size());
    at::Tensor scores = choice_.process(tokens(), logits_.log_softmax(1));
    scores = scores + at::tensor(running_scores(), at::kFloat).unsqueeze(1);
    const int64_t vocabulary = scores.size(1);
    scores = scores.reshape({count, beams * vocabulary});
    // There are as many candidates as leave num_beams that go on, if none ends but by its last token.
    const int64_t ends = std::max<int64_t>(2, 1 + static_cast<int64_t>(choice_.options().eos_token_ids.size()));
    const int64_t wanted = std::min(ends * beams, scores.size(1));
    at::Tensor chosen =
        choice_.options().do_sample ? choice_.draw(scores, wanted) : std::get<1>(scores.topk(wanted, 1));
    if (choice_.options().do_sample) {  // in the order of their scores
      chosen = chosen.gather(1, std::get<1>(scores.gather(1, chosen).sort(true, 1, true)));
    }
    const at::Tensor chosen_scores = scores.gather(1, chosen);
    bool goes_on = false;
    for (int64_t p = 0; p < count; ++p) {
      goes_on |= prompts_[static_cast<size_t>(p)].take(candidates(p, chosen[p], chosen_scores[p], vocabulary), choice_);
    }
    const bool all_full = std::ranges::all_of(prompts_, [](const Beams& of) { return of.full(); });
    const bool can_improve = std::ranges::any_of(prompts_, [](const Beams& of) { return of.can_improve(); });
    done_ = !goes_on || !can_improve || (all_full && choice_.options().early_stopping == EarlyStopping::True);
    return std::vector<Tokens>(prompts_.size() * static_cast<size_t>(choice_.options().num_return_sequences));
  }

  std::vector<Tokens> sequences() const override {
    const auto wanted = static_cast<size_t>(choice_.options().num_return_sequences);
    std::vector<Tokens> result;
    for (const Beams& of : prompts_) {
      std::vector<Beam> best = of.finished();
      best.insert(best.end(), of.running().begin(), of.running().end());
      for (size_t i = 0; i < wanted; ++i) result.push_back(best[i].tokens);
    }
    return result;
  }

 private:
  std::vector<Tokens> tokens() const {
    std::vector<Tokens> all;
    for (const Beams& of : prompts_) {
      for (const Beam& beam : of.running()) all.push_back(beam.tokens);
    }
    return all;
  }

  std::vector<double> running_scores() const {
    std::vector<double> all;
    for (const Beams& of : prompts_) {
      for (const Beam& beam : of.running()) all.push_back(beam.score);
    }
    return all;
  }

  // Reads the last token of each beam, after the tokens of the beam that it goes on from.
  void go_on() {
    std::vector<int64_t> parents;
    Tokens last;
    const int64_t beams = choice_.options().num_beams;
    for (size_t p = 0; p < prompts_.size(); ++p) {
      for (const Beam& beam : prompts_[p].running()) {
        parents.push_back(static_cast<int64_t>(p) * beams + beam.parent);
        last.push_back(beam.tokens.back());
      }
    }
    state_.reorder(at::tensor(parents, at::kLong));
    logits_ = state_.append(column(last), {}, false);
  }

  std::vector<Beam> candidates(int64_t prompt, const at::Tensor& chosen, const at::Tensor& scores,
                               int64_t vocabulary) const {
    const auto columns = chosen.accessor<int64_t, 1>();
    const auto values = scores.accessor<float, 1>();
    const std::vector<Beam>& running = prompts_[static_cast<size_t>(prompt)].running();
    std::vector<Beam> result;
    for (int64_t i = 0; i < columns.size(0); ++i) {
      const int64_t parent = columns[i] / vocabulary;
      Beam beam{running[static_cast<size_t>(parent)].tokens, values[i], parent};
      beam.tokens.push_back(columns[i] % vocabulary);
      result.push_back(std::move(beam));
    }
    return result;
  }

  DecoderState state_;
  at::Tensor logits_;
  Choice choice_;
  std::vector<Beams> prompts_;
  bool has_begun_ = false, done_ = false;
};

}  // namespace

std::unique_ptr<Search> beam_search(Begun begun, const GenerationOptions& options, const at::Generator& generator) {
  return std::make_unique<BeamSearch>(std::move(begun), options, generator);
}

}  // namespace onnxtorch
