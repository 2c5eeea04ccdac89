#include "language/processors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace onnxtorch {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

at::Tensor indices(const Tokens& tokens) { return at::tensor(tokens, at::kLong); }

// Keeps those of the tokens that the scores have, as a vocabulary may be larger than the logits.
Tokens within(const Tokens& tokens, int64_t vocabulary) {
  Tokens kept;
  std::ranges::copy_if(tokens, std::back_inserter(kept), [&](int64_t t) { return t >= 0 && t < vocabulary; });
  return kept;
}

at::Tensor without(const at::Tensor& scores, const Tokens& tokens) {
  return scores.index_fill(1, indices(within(tokens, scores.size(1))), kNever);
}

at::Tensor only(const at::Tensor& scores, const Tokens& tokens) {
  return at::full_like(scores, kNever).index_fill(1, indices(within(tokens, scores.size(1))), 0);
}

// --- Rules of the text so far ---

LogitsProcessor repetition_penalty(double penalty) {
  return [=](const std::vector<Tokens>& sequences, const at::Tensor& scores) {
    at::Tensor result = scores.clone();
    for (size_t row = 0; row < sequences.size(); ++row) {
      const at::Tensor there = indices(within(sequences[row], scores.size(1)));
      at::Tensor of_row = result[static_cast<int64_t>(row)];
      const at::Tensor old = scores[static_cast<int64_t>(row)].index_select(0, there);
      of_row.index_copy_(0, there, at::where(old < 0, old * penalty, old / penalty));
    }
    return result;
  };
}

// Gives the tokens that have followed the last n - 1 tokens before.
Tokens completions(const Tokens& sequence, size_t n) {
  Tokens found;
  if (sequence.size() < n) return found;
  const auto last = sequence.end() - static_cast<std::ptrdiff_t>(n - 1);
  for (auto at = sequence.begin(); at + static_cast<std::ptrdiff_t>(n) <= sequence.end(); ++at) {
    if (std::equal(last, sequence.end(), at)) found.push_back(at[static_cast<std::ptrdiff_t>(n - 1)]);
  }
  return found;
}

LogitsProcessor no_repeat_ngrams(int64_t size) {
  return [=](const std::vector<Tokens>& sequences, const at::Tensor& scores) {
    at::Tensor result = scores.clone();
    for (size_t row = 0; row < sequences.size(); ++row) {
      const Tokens banned = within(completions(sequences[row], static_cast<size_t>(size)), scores.size(1));
      if (!banned.empty()) result[static_cast<int64_t>(row)].index_fill_(0, indices(banned), kNever);
    }
    return result;
  };
}

// Makes a processor that is at work while `when` holds of how many tokens have been generated.
template <typename Condition>
LogitsProcessor where_generated(const std::vector<Tokens>& prompts, Condition when, LogitsProcessor processor) {
  // Rows grow alike, and there may be several for each prompt.
  return [=, first = static_cast<int64_t>(prompts[0].size()), processor = std::move(processor)](
             const std::vector<Tokens>& sequences, const at::Tensor& scores) {
    const int64_t generated = static_cast<int64_t>(sequences[0].size()) - first;
    return when(generated) ? processor(sequences, scores) : scores;
  };
}

LogitsProcessor suppressed(Tokens tokens) {
  return [tokens = std::move(tokens)](const std::vector<Tokens>&, const at::Tensor& scores) {
    return without(scores, tokens);
  };
}

LogitsProcessor forced(Tokens tokens) {
  return [tokens = std::move(tokens)](const std::vector<Tokens>&, const at::Tensor& scores) {
    return only(scores, tokens);
  };
}

// --- What sampling leaves out ---

// Gives the scores without those `removed`, of which the `kept` largest ones of a row stay.
at::Tensor filtered(const at::Tensor& scores, const at::Tensor& removed, int64_t kept) {
  const at::Tensor best = std::get<1>(scores.topk(std::min(kept, scores.size(1)), 1));
  return scores.masked_fill(removed.scatter(1, best, false), kNever);
}

LogitsProcessor temperature(double value) {
  return [=](const std::vector<Tokens>&, const at::Tensor& scores) { return scores / value; };
}

LogitsProcessor top_k(int64_t k, int64_t kept) {
  return [=](const std::vector<Tokens>&, const at::Tensor& scores) {
    const int64_t count = std::min(std::max(k, kept), scores.size(1));
    const at::Tensor least = std::get<0>(scores.topk(count, 1)).narrow(1, count - 1, 1);
    return scores.masked_fill(scores < least, kNever);
  };
}

LogitsProcessor top_p(double p, int64_t kept) {
  return [=](const std::vector<Tokens>&, const at::Tensor& scores) {
    const auto [sorted, order] = scores.sort(1);
    const at::Tensor rest = sorted.softmax(1).cumsum(1) <= 1 - p;
    return filtered(scores, at::zeros_like(rest).scatter(1, order, rest), kept);
  };
}

LogitsProcessor min_p(double p, int64_t kept) {
  return [=](const std::vector<Tokens>&, const at::Tensor& scores) {
    const at::Tensor probabilities = scores.softmax(1);
    return filtered(scores, probabilities < probabilities.amax({1}, true) * p, kept);
  };
}

at::Tensor entropy(const at::Tensor& log_probabilities) {
  return -(log_probabilities * log_probabilities.exp()).nansum(at::IntArrayRef{1}, true);
}

// Keeps the tokens whose surprise is nearest to the expected one, until they have the mass.
LogitsProcessor typical(double mass, int64_t kept) {
  return [=](const std::vector<Tokens>&, const at::Tensor& scores) {
    const at::Tensor logs = scores.log_softmax(1);
    const auto [sorted, order] = (-logs - entropy(logs)).abs().sort(1);
    const at::Tensor sums = scores.gather(1, order).softmax(1).cumsum(1);
    const at::Tensor last = (sums < mass).sum(1, true).clamp_max(scores.size(1) - 1);
    at::Tensor rest = sorted > sorted.gather(1, last);
    rest.narrow(1, 0, std::min(kept, scores.size(1))).fill_(false);
    return scores.masked_fill(at::zeros_like(rest).scatter(1, order, rest), kNever);
  };
}

LogitsProcessor epsilon_cutoff(double epsilon, int64_t kept) {
  return [=](const std::vector<Tokens>&, const at::Tensor& scores) {
    return filtered(scores, scores.softmax(1) < epsilon, kept);
  };
}

LogitsProcessor eta_cutoff(double epsilon, int64_t kept) {
  return [=](const std::vector<Tokens>&, const at::Tensor& scores) {
    const at::Tensor eta = ((-entropy(scores.log_softmax(1))).exp() * std::sqrt(epsilon)).clamp_max(epsilon);
    return filtered(scores, scores.softmax(1) < eta, kept);
  };
}

void add_rules(std::vector<LogitsProcessor>& all, const GenerationOptions& o, const std::vector<Tokens>& prompts) {
  if (o.repetition_penalty != 1) all.push_back(repetition_penalty(o.repetition_penalty));
  if (o.no_repeat_ngram_size > 0) all.push_back(no_repeat_ngrams(o.no_repeat_ngram_size));
  if (o.min_new_tokens > 0 && !o.eos_token_ids.empty()) {
    const auto too_short = [least = o.min_new_tokens](int64_t generated) { return generated < least; };
    all.push_back(where_generated(prompts, too_short, suppressed(o.eos_token_ids)));
  }
  if (o.forced_bos_token_id) {
    // The token is the first after the one that begins every text.
    const auto second = [length = prompts[0].size()](int64_t generated) { return length + generated == 1; };
    all.push_back(where_generated(prompts, second, forced({*o.forced_bos_token_id})));
  }
  if (!o.forced_eos_token_ids.empty()) {
    const auto at_last = [most = o.max_new_tokens](int64_t generated) { return generated == most - 1; };
    all.push_back(where_generated(prompts, at_last, forced(o.forced_eos_token_ids)));
  }
  if (!o.suppress_tokens.empty()) all.push_back(suppressed(o.suppress_tokens));
  if (!o.begin_suppress_tokens.empty()) {
    const bool is_forced = prompts[0].size() <= 1 && o.forced_bos_token_id;
    const auto begins = [first = is_forced ? 1 : 0](int64_t generated) { return generated == first; };
    all.push_back(where_generated(prompts, begins, suppressed(o.begin_suppress_tokens)));
  }
}

void add_sampling(std::vector<LogitsProcessor>& all, const GenerationOptions& o) {
  // With beams, one of them at least has to go on.
  const auto ends = static_cast<int64_t>(o.eos_token_ids.size());
  const int64_t kept = o.num_beams == 1 ? 1 : o.eos_token_ids.empty() ? 2 : ends + 1;
  if (o.temperature != 1) all.push_back(temperature(o.temperature));
  if (o.top_k != 0) all.push_back(top_k(o.top_k, kept));
  if (o.top_p < 1) all.push_back(top_p(o.top_p, kept));
  if (o.min_p > 0) all.push_back(min_p(o.min_p, kept));
  if (o.typical_p < 1) all.push_back(typical(o.typical_p, kept));
  if (o.epsilon_cutoff > 0) all.push_back(epsilon_cutoff(o.epsilon_cutoff, kept));
  if (o.eta_cutoff > 0) all.push_back(eta_cutoff(o.eta_cutoff, kept));
}

void require(bool holds, const char* what) {
  if (!holds) throw InputError(what);
}

}  // namespace

void check_options(const GenerationOptions& o) {
  require(o.max_new_tokens >= 1, "max_new_tokens must be 1 or more");
  require(o.min_new_tokens >= 0, "min_new_tokens must be 0 or more");
  require(!o.do_sample || o.temperature > 0,
          "temperature must be more than 0; without do_sample, the likeliest token is taken");
  require(o.top_k >= 0, "top_k must be 0 or more");
  require(o.top_p >= 0 && o.top_p <= 1, "top_p must be from 0 to 1");
  require(o.min_p >= 0 && o.min_p <= 1, "min_p must be from 0 to 1");
  require(o.typical_p > 0 && o.typical_p <= 1, "typical_p must be more than 0 and at most 1");
  require(o.epsilon_cutoff >= 0 && o.epsilon_cutoff < 1, "epsilon_cutoff must be from 0 to less than 1");
  require(o.eta_cutoff >= 0 && o.eta_cutoff < 1, "eta_cutoff must be from 0 to less than 1");
  require(o.repetition_penalty > 0, "repetition_penalty must be more than 0");
  require(o.no_repeat_ngram_size >= 0, "no_repeat_ngram_size must be 0 or more");
  require(o.num_beams >= 1, "num_beams must be 1 or more");
  require(o.num_return_sequences >= 1, "num_return_sequences must be 1 or more");
  require(o.num_beams == 1 || o.num_return_sequences <= o.num_beams, "num_return_sequences must be at most num_beams");
  require(o.num_assistant_tokens >= 1, "num_assistant_tokens must be 1 or more");
  require(!o.assistant_model || (o.num_beams == 1 && o.num_return_sequences == 1),
          "assistant_model is for one sequence at a time, and not for beams");
  require(o.num_beams > 1 || o.do_sample || o.num_return_sequences == 1,
          "num_return_sequences needs do_sample or num_beams: without, all sequences are the same");
}

std::vector<LogitsProcessor> processors_of(const GenerationOptions& options, const std::vector<Tokens>& prompts) {
  std::vector<LogitsProcessor> all;
  add_rules(all, options, prompts);
  all.insert(all.end(), options.logits_processors.begin(), options.logits_processors.end());
  if (options.do_sample) add_sampling(all, options);
  return all;
}

bool read_sequences(const GenerationOptions& options) {
  std::vector<LogitsProcessor> rules = options.logits_processors;
  add_rules(rules, options, {{}});
  return !rules.empty();
}

at::Tensor processed(const std::vector<LogitsProcessor>& processors, const std::vector<Tokens>& sequences,
                     at::Tensor scores) {
  const at::IntArrayRef sizes = scores.sizes();
  const std::vector<int64_t> expected(sizes.begin(), sizes.end());
  for (const LogitsProcessor& processor : processors) {
    scores = processor(sequences, scores);
    if (scores.sizes() != expected) throw InputError("a logits processor must keep the shape of the scores");
  }
  return scores;
}

}  // namespace onnxtorch
