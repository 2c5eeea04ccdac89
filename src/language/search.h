// Ways to choose the tokens of a text.
#pragma once

#include <ATen/core/Generator.h>

#include <functional>
#include <memory>
#include <vector>

#include "language/decoder_state.h"
#include "onnx_torch/language_model.h"

namespace onnxtorch {

class Search {
 public:
  Search() = default;
  virtual ~Search() = default;
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  virtual bool done() const = 0;
  virtual std::vector<Tokens> step() = 0;  // the tokens that each returned sequence has got
  virtual std::vector<Tokens> sequences() const = 0;
};

// A state that has read the prompts, and the logits of what may follow.
struct Begun {
  DecoderState state;
  at::Tensor logits;
  std::vector<Tokens> prompts;
};

// The use that every search makes of its options.
class Choice {
 public:
  Choice(GenerationOptions options, const std::vector<Tokens>& prompts, at::Generator generator);

  const GenerationOptions& options() const { return options_; }
  at::Tensor process(const std::vector<Tokens>& sequences, const at::Tensor& scores) const;
  Tokens choose(const at::Tensor& scores) const;  // the likeliest of each row, or one that is drawn
  double uniform() const;                         // a number from 0 to 1 that is drawn
  at::Tensor draw_from(const at::Tensor& probabilities, int64_t count) const;
  at::Tensor draw(const at::Tensor& scores, int64_t count) const;  // indices of columns, each once at most
  bool ends(const Tokens& sequence) const;  // by its last token, or by what the caller's `stop` says
  int64_t padding() const;
  void check_cancel() const;

 private:
  GenerationOptions options_;
  std::vector<LogitsProcessor> processors_;
  at::Generator generator_;
};

at::Generator generator_of(const GenerationOptions& options);

std::unique_ptr<Search> sampling(Begun begun, const GenerationOptions& options, const at::Generator& generator);
std::unique_ptr<Search> beam_search(Begun begun, const GenerationOptions& options, const at::Generator& generator);

// Makes a search of one prompt. `draft` is the state of the model that proposes tokens, and has read the prompt.
std::unique_ptr<Search> speculation(Begun begun, DecoderState draft, const GenerationOptions& options,
                                    const at::Generator& generator);

// The searches of one prompt each, which in_turn makes one after another.
using MakeSearch = std::function<std::unique_ptr<Search>(size_t prompt)>;
std::unique_ptr<Search> in_turn(const std::vector<Tokens>& prompts, int64_t for_each, MakeSearch make);

}  // namespace onnxtorch
