// Text out of a decoder, token by token:
//
//   const auto lm = onnxtorch::LanguageModel::load("model.onnx");
//   const auto sequences = lm.generate({.ids = {{1, 15043}}}, {.max_new_tokens = 100, .eos_token_ids = {2}});
//
// docs/language_models.md tells what is found in a model, and what each option means.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "onnx_torch/error.h"
#include "onnx_torch/options.h"
#include "onnx_torch/visibility.h"

namespace onnxtorch {

using Tokens = std::vector<int64_t>;

// A part of what a decoder remembers: a step takes it as the input `past` and gives it as the output `present`, which
// is the next step's past.
struct CacheEntry {
  std::string name;            // what the two names have in common, such as "0.key"
  std::string past;            // empty: this model takes none
  std::string present;         // empty: this model gives none
  int64_t batch_axis = 0;      // the axis that has a row for each sequence
  int64_t sequence_axis = -1;  // the axis that grows by one for each token; -1: none does, as in a state-space model
  bool of_encoder = false;     // computed of the encoder's states by the first step, and kept
};

// The roles of a model's inputs and outputs.
struct Layout {
  std::map<std::string, std::string> inputs;   // its names of "input_ids", "attention_mask", "position_ids", …
  std::map<std::string, std::string> outputs;  // its names of "logits"
  std::vector<CacheEntry> caches;

  ONNX_TORCH_API std::string str() const;
};

// The model's names of what cannot be told from names and shapes, by the names above; of caches "past.NAME" among the
// inputs and "present.NAME" among the outputs.
struct Mapping {
  std::map<std::string, std::string> inputs, outputs;
};

// A function that changes the scores, [rows, vocabulary], of what may follow the sequences, of which there is one for
// each row.
using LogitsProcessor = std::function<at::Tensor(const std::vector<Tokens>& sequences, const at::Tensor& scores)>;

class LanguageModel;

// The options of a generation. The names, meanings and defaults are those of transformers.
struct GenerationOptions {
  enum class EarlyStopping : uint8_t { False, True, Never };

  int64_t max_new_tokens = 20;
  int64_t min_new_tokens = 0;
  // The number of tokens that a sequence has at most. Caches have room for them from the first step on; none: it is
  // doubled where more come.
  std::optional<int64_t> max_length = {};
  Tokens eos_token_ids = {};
  std::optional<int64_t> pad_token_id = {};  // fills rows that end before others; none: the first of eos_token_ids

  bool do_sample = false;
  double temperature = 1;
  int64_t top_k = 50;  // 0: all
  double top_p = 1;
  double min_p = 0;
  double typical_p = 1;
  double epsilon_cutoff = 0;
  double eta_cutoff = 0;
  std::optional<uint64_t> seed = {};  // none: torch's default generator

  double repetition_penalty = 1;
  int64_t no_repeat_ngram_size = 0;
  Tokens suppress_tokens = {};
  Tokens begin_suppress_tokens = {};
  std::optional<int64_t> forced_bos_token_id = {};
  Tokens forced_eos_token_ids = {};
  std::vector<LogitsProcessor> logits_processors = {};

  int64_t num_beams = 1;
  double length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::False;
  int64_t num_return_sequences = 1;

  // A smaller model of the same tokens, which proposes some that are then read in one step.
  std::shared_ptr<const LanguageModel> assistant_model = {};
  int64_t num_assistant_tokens = 5;

  // A function that tells whether a sequence ends here; it is asked of each after each token, besides eos_token_ids.
  std::function<bool(const Tokens& sequence)> stop = {};
  const std::atomic<bool>* cancel = nullptr;  // any thread may set it: a StoppedError at the end of the step
};

// The prompt that text is generated from. An encoder takes tokens, or tensors by its inputs' names.
struct Prompt {
  std::vector<Tokens> ids = {};  // those of the decoder; sequences need not be of one length
  std::vector<Tokens> encoder_ids = {};
  std::map<std::string, at::Tensor> encoder_inputs = {};
};

class DecoderState;
struct LanguageModelParts;

// Sequences that a decoder has read, with what it remembers of them. A copy shares that memory, and costs nothing: each
// goes on by itself. One thread at a time may use a state.
class ONNX_TORCH_API GenerationState {
 public:
  explicit GenerationState(DecoderState state);
  GenerationState(const GenerationState& other);
  GenerationState(GenerationState&& other) noexcept;
  GenerationState& operator=(GenerationState other) noexcept;
  ~GenerationState();

  int64_t batch_size() const;
  int64_t length() const;              // the length of the sequences, padding included
  std::vector<Tokens> tokens() const;  // those of each sequence, without padding
  std::optional<int64_t> max_length() const;

  // Reads more tokens, [batch size, count], and gives the logits, in float32 on the CPU, [batch size, vocabulary], of
  // what may follow; or [batch size, count, vocabulary], of what may follow each of them. `mask` is 0 at padding.
  at::Tensor append(const at::Tensor& ids, const at::Tensor& mask = {});
  at::Tensor append_all(const at::Tensor& ids, const at::Tensor& mask = {});

  void rewind(int64_t count);                      // forgets so many tokens at the end of each sequence
  GenerationState fork() const { return *this; }   // another state, which goes on from here by itself
  void reorder(const std::vector<int64_t>& rows);  // these rows, in this order, become the batch

  // The rows of a state, which stays as it is when `join` makes another one of them. Rows that have read different
  // numbers of tokens can be joined where LanguageModel::takes_lengths.
  struct Rows {
    const GenerationState* state;
    std::vector<int64_t> rows;
  };
  static GenerationState join(const std::vector<Rows>& parts);

  DecoderState& decoder_state() { return *state_; }
  const DecoderState& decoder_state() const { return *state_; }

 private:
  std::unique_ptr<DecoderState> state_;
};

class Search;

// One generation, step by step.
class ONNX_TORCH_API Generation {
 public:
  explicit Generation(std::unique_ptr<Search> search);
  Generation(Generation&&) noexcept;
  Generation& operator=(Generation&&) noexcept;
  ~Generation();

  bool done() const;
  std::vector<Tokens> step();             // the tokens that each sequence has got by one step: none, where it has ended
  std::vector<Tokens> sequences() const;  // with their prompts

 private:
  std::unique_ptr<Search> search_;
};

// A decoder, and an encoder where there is one. Immutable and cheap to copy; any number of threads may use one at the
// same time.
class ONNX_TORCH_API LanguageModel {
 public:
  // Loads the file of a decoder, or a folder that holds one: see docs/language_models.md for the names that are looked
  // for.
  static LanguageModel load(const std::filesystem::path& path, const Options& options = {},
                            const Mapping& mapping = {});
  explicit LanguageModel(std::shared_ptr<const LanguageModelParts> parts) : parts_(std::move(parts)) {}

  const Layout& layout() const;  // of a decoder that takes a past, where there are two
  bool has_encoder() const;
  bool takes_lengths() const;  // whether sequences of different lengths may go on in one batch (GenerationState::join)

  // Makes a state that has read the prompt, or nothing yet, and reads `max_length` tokens at most: its caches have room
  // for them from the first step on, which is doubled by default where more come.
  GenerationState start(const Prompt& prompt = {}, std::optional<int64_t> max_length = {}) const;

  // Begins a generation. `prefix` has been read already: what all prompts begin with.
  Generation generation(const Prompt& prompt, const GenerationOptions& options = {},
                        const GenerationState* prefix = nullptr) const;

  // Generates the sequences, with their prompts; num_return_sequences of each. `stream` is told what each has got by
  // each step.
  std::vector<Tokens> generate(const Prompt& prompt, const GenerationOptions& options = {},
                               const std::function<void(const std::vector<Tokens>& tokens)>& stream = {}) const;

  const std::shared_ptr<const LanguageModelParts>& parts() const { return parts_; }

 private:
  std::shared_ptr<const LanguageModelParts> parts_;
};

}  // namespace onnxtorch
