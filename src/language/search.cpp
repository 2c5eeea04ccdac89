#include "language/search.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/multinomial.h>
#include <ATen/ops/rand.h>

#include <algorithm>

#include "language/processors.h"

namespace onnxtorch {

at::Generator generator_of(const GenerationOptions& options) {
  return options.seed ? at::make_generator<at::CPUGeneratorImpl>(*options.seed) : at::detail::getDefaultCPUGenerator();
}

Choice::Choice(GenerationOptions options, const std::vector<Tokens>& prompts, at::Generator generator)
    : options_(std::move(options)), processors_(processors_of(options_, prompts)), generator_(std::move(generator)) {}

at::Tensor Choice::process(const std::vector<Tokens>& sequences, const at::Tensor& scores) const {
  return processed(processors_, sequences, scores);
}

at::Tensor Choice::draw_from(const at::Tensor& probabilities, int64_t count) const {
  return at::multinomial(probabilities, count, false, generator_);
}

at::Tensor Choice::draw(const at::Tensor& scores, int64_t count) const { return draw_from(scores.softmax(1), count); }

Tokens Choice::choose(const at::Tensor& scores) const {
  const at::Tensor tokens = (options_.do_sample ? draw(scores, 1).squeeze(1) : scores.argmax(1)).contiguous();
  const auto* first = tokens.const_data_ptr<int64_t>();
  return {first, first + tokens.numel()};
}

double Choice::uniform() const { return at::rand({}, generator_, at::kDouble).item<double>(); }

bool Choice::ends(const Tokens& sequence) const {
  return std::ranges::find(options_.eos_token_ids, sequence.back()) != options_.eos_token_ids.end() ||
         (options_.stop && options_.stop(sequence));
}

int64_t Choice::padding() const {
  return options_.pad_token_id.value_or(options_.eos_token_ids.empty() ? 0 : options_.eos_token_ids[0]);
}

void Choice::check_cancel() const {
  if (options_.cancel && options_.cancel->load()) throw StoppedError("the generation was cancelled");
}

namespace {

class InTurn : public Search {
 public:
  InTurn(const std::vector<Tokens>& prompts, int64_t for_each, MakeSearch make)
      : for_each_(for_each), make_(std::move(make)) {
    for (const Tokens& prompt : prompts) sequences_.insert(sequences_.end(), static_cast<size_t>(for_each), prompt);
  }

  bool done() const override { return next_ == sequences_.size() && !search_; }

  std::vector<Tokens> step() override {
    std::vector<Tokens> all(sequences_.size());
    const auto count = static_cast<size_t>(for_each_);
    if (!search_) {
      search_ = make_(next_ / count);
      next_ += count;
    }
    std::vector<Tokens> got = search_->step();
    std::ranges::move(got, all.begin() + static_cast<std::ptrdiff_t>(next_ - count));
    if (search_->done()) {
      std::ranges::copy(search_->sequences(), sequences_.begin() + static_cast<std::ptrdiff_t>(next_ - count));
      search_.reset();
    }
    return all;
  }

  std::vector<Tokens> sequences() const override {
    std::vector<Tokens> all = sequences_;
    if (search_) std::ranges::copy(search_->sequences(), all.begin() + static_cast<std::ptrdiff_t>(next_) - for_each_);
    return all;
  }

 private:
  int64_t for_each_;
  MakeSearch make_;
  std::vector<Tokens> sequences_;
  size_t next_ = 0;  // the first sequence of the next prompt
  std::unique_ptr<Search> search_;
};

}  // namespace

std::unique_ptr<Search> in_turn(const std::vector<Tokens>& prompts, int64_t for_each, MakeSearch make) {
  return std::make_unique<InTurn>(prompts, for_each, std::move(make));
}

}  // namespace onnxtorch
