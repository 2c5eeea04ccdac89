#include "onnx_torch/language_model.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "api/as_errors.h"
#include "import/model_reader.h"
#include "language/decoder_state.h"
#include "language/layout.h"
#include "language/model_folder.h"
#include "language/parts.h"
#include "language/processors.h"
#include "language/search.h"
#include "language/sequences.h"

namespace onnxtorch {
namespace {

std::shared_ptr<const PreparedModel> prepared(const std::filesystem::path& file, const Options& options) {
  return std::make_shared<const PreparedModel>(ModelFile::from_path(file, {}, {}), options);
}

// Gives options by which a decoder's runs give the logits of the last token alone, unless those of all are asked for.
Options of_decoder(Options options, const Mapping& mapping) {
  options.last_only.merge(logits_names(mapping));
  return options;
}

Prompt only(const Prompt& prompt, size_t i) {
  Prompt one{{prompt.ids[i]}, {}, {}};
  if (!prompt.encoder_ids.empty()) one.encoder_ids.push_back(prompt.encoder_ids[i]);
  const auto row = static_cast<int64_t>(i);
  for (const auto& [name, tensor] : prompt.encoder_inputs) one.encoder_inputs[name] = tensor.narrow(0, row, 1);
  return one;
}

EncoderStates encoded(const LanguageModelParts& parts, const Prompt& prompt) {
  if (parts.encoder) return parts.encoder->run(prompt);
  if (prompt.encoder_ids.empty() && prompt.encoder_inputs.empty()) return {};
  throw InputError("the model has no encoder, and an encoder's inputs are given");
}

DecoderState copy_for(const GenerationState& prefix, size_t rows) {
  DecoderState state = prefix.decoder_state();
  if (state.length() == 0 || state.batch_size() == static_cast<int64_t>(rows)) return state;
  if (state.batch_size() != 1) {
    throw InputError("the prefix has " + std::to_string(state.batch_size()) + " sequences, and the prompt " +
                     std::to_string(rows));
  }
  state.reorder(at::zeros({static_cast<int64_t>(rows)}, at::kLong));
  return state;
}

// Reads prompts one by one, of which any lengths then go on in one batch; nothing where the model does not let them.
std::optional<Begun> begin_side_by_side(const std::shared_ptr<const LanguageModelParts>& parts, const Prompt& prompt,
                                        std::optional<int64_t> max_length) {
  const bool has_encoder = parts->encoder || !prompt.encoder_ids.empty() || !prompt.encoder_inputs.empty();
  if (has_encoder || parts->next().takes_padding() || !parts->next().takes_lengths()) return {};
  std::vector<DecoderState> states;
  std::vector<at::Tensor> logits;
  for (const Tokens& tokens : prompt.ids) {
    states.emplace_back(parts, EncoderStates(), max_length);
    logits.push_back(states.back().append(column(tokens).t(), {}, false));
    if (!states.back().can_join()) return {};
  }
  std::vector<StateRows> rows;
  for (const DecoderState& state : states) rows.push_back({&state, {0}});
  DecoderState joined = DecoderState::joined(rows);
  if (max_length) joined.set_max_length(*max_length);
  return Begun{std::move(joined), at::cat(logits), prompt.ids};
}

Begun begin(const std::shared_ptr<const LanguageModelParts>& parts, const Prompt& prompt, const GenerationState* prefix,
            std::optional<int64_t> max_length) {
  const Padded tokens = padded(prompt.ids, Side::Left);
  if (!prefix && !of_one_length(prompt.ids)) {
    if (auto begun = begin_side_by_side(parts, prompt, max_length)) return *std::move(begun);
  }
  DecoderState state =
      prefix ? copy_for(*prefix, prompt.ids.size()) : DecoderState(parts, encoded(*parts, prompt), max_length);
  if (prefix && max_length) state.set_max_length(*max_length);
  std::vector<Tokens> prompts = prompt.ids;
  if (prefix && prefix->length() > 0) {
    const std::vector<Tokens> before = state.tokens();
    for (size_t i = 0; i < prompts.size(); ++i)
      prompts[i].insert(prompts[i].begin(), before[i].begin(), before[i].end());
  }
  at::Tensor logits = state.append(tokens.ids, tokens.mask, false);
  return {std::move(state), std::move(logits), std::move(prompts)};
}

std::unique_ptr<Search> search(Begun begun, const Prompt& prompt, const GenerationOptions& options,
                               const at::Generator& generator) {
  if (options.assistant_model) {
    const Prompt same{begun.prompts, prompt.encoder_ids, prompt.encoder_inputs};
    DecoderState draft = begin(options.assistant_model->parts(), same, nullptr, options.max_length).state;
    return speculation(std::move(begun), std::move(draft), options, generator);
  }
  return options.num_beams > 1 ? beam_search(std::move(begun), options, generator)
                               : sampling(std::move(begun), options, generator);
}

// Tells whether all prompts can be one batch.
bool is_batch(const LanguageModelParts& parts, const Prompt& prompt, const GenerationOptions& options) {
  if (options.assistant_model && prompt.ids.size() > 1) return false;
  const auto fixed = parts.next().fixed_batch();
  if (fixed && *fixed != static_cast<int64_t>(prompt.ids.size())) return false;
  return of_one_length(prompt.ids) || parts.next().takes_padding();
}

void check_batch(const LanguageModelParts& parts, const GenerationOptions& options) {
  const auto fixed = parts.next().fixed_batch();
  const int64_t rows = std::max(options.num_beams, options.num_return_sequences);
  if (fixed && *fixed < rows) {
    throw InputError("the model takes " + std::to_string(*fixed) + " sequences, and " + std::to_string(rows) +
                     " are to be followed at the same time");
  }
}

void check_length(const Prompt& prompt, const GenerationOptions& options, const GenerationState* prefix) {
  const auto most = options.max_length ? options.max_length
                    : prefix           ? prefix->decoder_state().max_length()
                                       : std::nullopt;
  if (!most) return;
  size_t longest = 0;
  for (const Tokens& tokens : prompt.ids) longest = std::max(longest, tokens.size());
  const int64_t given = static_cast<int64_t>(longest) + (prefix ? prefix->length() : 0);
  if (given + options.max_new_tokens <= *most) return;
  throw InputError("there are " + std::to_string(given) + " tokens and " + std::to_string(options.max_new_tokens) +
                   " more to come (max_new_tokens), and room for " + std::to_string(*most) +
                   " as max_length says; give a larger max_length, or fewer max_new_tokens");
}

}  // namespace

GenerationState::GenerationState(DecoderState state) : state_(std::make_unique<DecoderState>(std::move(state))) {}
GenerationState::GenerationState(const GenerationState& other) : GenerationState(*other.state_) {}
GenerationState::GenerationState(GenerationState&& other) noexcept = default;
GenerationState& GenerationState::operator=(GenerationState other) noexcept {
  state_ = std::move(other.state_);
  return *this;
}
GenerationState::~GenerationState() = default;

int64_t GenerationState::batch_size() const { return state_->batch_size(); }
int64_t GenerationState::length() const { return state_->length(); }
std::vector<Tokens> GenerationState::tokens() const { return state_->tokens(); }
std::optional<int64_t> GenerationState::max_length() const { return state_->max_length(); }

at::Tensor GenerationState::append(const at::Tensor& ids, const at::Tensor& mask) {
  return as_errors([&] { return state_->append(ids, mask, false); });
}

at::Tensor GenerationState::append_all(const at::Tensor& ids, const at::Tensor& mask) {
  return as_errors([&] { return state_->append(ids, mask, true); });
}

void GenerationState::rewind(int64_t count) {
  as_errors([&] { state_->rewind(count); });
}

void GenerationState::reorder(const std::vector<int64_t>& rows) {
  as_errors([&] {
    for (const int64_t row : rows) {
      if (row < 0 || row >= batch_size()) throw InputError("there is no sequence " + std::to_string(row));
    }
    state_->reorder(at::tensor(rows, at::kLong));
  });
}

GenerationState GenerationState::join(const std::vector<Rows>& parts) {
  return as_errors([&] {
    std::vector<StateRows> chosen;
    for (const auto& [state, rows] : parts) chosen.push_back({state->state_.get(), rows});
    return GenerationState(DecoderState::joined(chosen));
  });
}

Generation::Generation(std::unique_ptr<Search> search) : search_(std::move(search)) {}
Generation::Generation(Generation&&) noexcept = default;
Generation& Generation::operator=(Generation&&) noexcept = default;
Generation::~Generation() = default;

bool Generation::done() const { return search_->done(); }
std::vector<Tokens> Generation::step() {
  return as_errors([&] { return search_->done() ? std::vector<Tokens>() : search_->step(); });
}
std::vector<Tokens> Generation::sequences() const { return search_->sequences(); }

LanguageModel LanguageModel::load(const std::filesystem::path& path, const Options& options, const Mapping& mapping) {
  return as_errors([&] {
    const ModelFolder files = find_model(path);
    Decoder first(prepared(files.decoder, of_decoder(options, mapping)), mapping);
    std::optional<Decoder> with_past;
    if (files.with_past) with_past.emplace(prepared(*files.with_past, of_decoder(options, mapping)), mapping);
    std::optional<Encoder> encoder;
    if (files.encoder) encoder.emplace(prepared(*files.encoder, options));
    return LanguageModel(make_parts(std::move(first), std::move(with_past), std::move(encoder)));
  });
}

const Layout& LanguageModel::layout() const { return parts_->next().layout(); }
bool LanguageModel::has_encoder() const { return parts_->encoder.has_value(); }
bool LanguageModel::takes_lengths() const {
  return !has_encoder() && !parts_->caches->empty() && parts_->next().takes_lengths();
}

GenerationState LanguageModel::start(const Prompt& prompt, std::optional<int64_t> max_length) const {
  return as_errors([&] {
    if (prompt.ids.empty()) return GenerationState(DecoderState(parts_, encoded(*parts_, prompt), max_length));
    return GenerationState(begin(parts_, prompt, nullptr, max_length).state);
  });
}

Generation LanguageModel::generation(const Prompt& prompt, const GenerationOptions& options,
                                     const GenerationState* prefix) const {
  return as_errors([&] {
    check_options(options);
    check_batch(*parts_, options);
    check_length(prompt, options, prefix);
    const at::Generator generator = generator_of(options);
    if (is_batch(*parts_, prompt, options)) {
      return Generation(search(begin(parts_, prompt, prefix, options.max_length), prompt, options, generator));
    }
    if (!prefix && !options.assistant_model) {
      auto begun = begin_side_by_side(parts_, prompt, options.max_length);
      if (begun) return Generation(search(*std::move(begun), prompt, options, generator));
    }
    std::optional<GenerationState> kept;
    if (prefix) kept = *prefix;
    const auto make = [parts = parts_, prompt, options, generator, kept](size_t i) {
      const Prompt one = only(prompt, i);
      return search(begin(parts, one, kept ? &*kept : nullptr, options.max_length), one, options, generator);
    };
    return Generation(in_turn(prompt.ids, options.num_return_sequences, make));
  });
}

std::vector<Tokens> LanguageModel::generate(const Prompt& prompt, const GenerationOptions& options,
                                            const std::function<void(const std::vector<Tokens>&)>& stream) const {
  Generation generation = this->generation(prompt, options);
  while (!generation.done()) {
    const std::vector<Tokens> tokens = generation.step();
    if (stream) stream(tokens);
  }
  return generation.sequences();
}

}  // namespace onnxtorch
