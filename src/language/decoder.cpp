#include "language/decoder.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/element_type.h"
#include "language/layout.h"
#include "language/past_form.h"

namespace onnxtorch {
namespace {

template <typename Spec>
size_t number_of(const std::vector<Spec>& specs, const std::string& name) {
  return static_cast<size_t>(std::ranges::find(specs, name, &Spec::name) - specs.begin());
}

Fed fed(const InputSpec& input, const at::Tensor& tensor) {
  return {input.type, tensor.to(storage_dtype(input.type.element))};
}

// Makes a tensor of one number, with as many axes as the model has for it.
at::Tensor number(const InputSpec& input, int64_t value) {
  const std::vector<int64_t> sizes(input.dims ? input.dims->size() : 0, 1);
  return at::full(sizes, value, at::kLong);
}

// Gives the positions of the last `count` tokens. Padding is at no position of its own.
at::Tensor positions(const at::Tensor& mask, int64_t count) {
  const at::Tensor all = (at::cumsum(mask, 1) - 1).clamp_min(0);
  return all.narrow(1, all.size(1) - count, count);
}

at::Tensor shaped_positions(const InputSpec& input, const StepInputs& step) {
  const int64_t count = step.ids.size(1);
  const size_t rank = input.dims ? input.dims->size() : 2;
  if (rank == 1) return at::arange(step.past_length, step.past_length + count, at::kLong);
  at::Tensor rows = positions(step.mask, count);
  if (rank == 2) return rows;
  const int64_t first = (*input.dims)[0].size;  // there are several kinds of them, which are alike for text
  if (rank == 3 && first > 0) return rows.unsqueeze(0).expand({first, -1, -1});
  throw InputError("the positions \"" + input.name + "\" of rank " + std::to_string(rank) + " are not known");
}

// Gives the mask with as many columns as the past has rows, besides those of the tokens.
at::Tensor shaped_mask(const InputSpec& input, const StepInputs& step, const Cache& cache) {
  if (input.dims && input.dims->size() != 2) {
    throw InputError("the mask \"" + input.name + "\" has rank " + std::to_string(input.dims->size()) +
                     ", and only masks of [batch, length] are known");
  }
  const int64_t unused = cache.past_rows() - step.past_length;
  switch (cache.form()) {
    case PastForm::Padded:
      return at::constant_pad_nd(step.mask, {unused, 0});
    case PastForm::Whole:
      return at::constant_pad_nd(step.mask, {0, std::max<int64_t>(cache.past_rows() - step.mask.size(1), 0)});
    default:
      return step.mask;
  }
}

// Makes what a first step takes of a cache: rows of no tokens, or a state of zeros.
at::Tensor empty_past(const InputSpec& input, const CacheEntry& entry, int64_t batch) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : *input.dims) sizes.push_back(dim.size);
  sizes[static_cast<size_t>(entry.batch_axis)] = batch;
  if (entry.sequence_axis >= 0) sizes[static_cast<size_t>(entry.sequence_axis)] = 0;
  return at::zeros(sizes, storage_dtype(input.type.element));
}

}  // namespace

Decoder::Decoder(std::shared_ptr<const PreparedModel> model, const Mapping& mapping)
    : model_(std::move(model)), layout_(find_layout(model_->inputs(), model_->outputs(), mapping)) {
  logits_ = number_of(model_->outputs(), layout_.outputs.at("logits"));
  for (const auto& [role, name] : layout_.inputs) roles_[role] = number_of(model_->inputs(), name);
  for (const CacheEntry& entry : layout_.caches) {
    pasts_.push_back(number_of(model_->inputs(), entry.past));
    presents_.push_back(number_of(model_->outputs(), entry.present));
  }
}

bool Decoder::takes_past() const {
  return std::ranges::any_of(layout_.caches, [](const CacheEntry& e) { return !e.past.empty(); });
}

std::optional<int64_t> Decoder::ids_axis(size_t axis) const {
  const InputSpec& ids = model_->inputs()[roles_.at("input_ids")];
  if (!ids.dims || ids.dims->size() <= axis || (*ids.dims)[axis].size < 0) return {};
  return (*ids.dims)[axis].size;
}

// Refuses padding for GroupQueryAttention, which counts the tokens of a row from its beginning, and for states, which
// are made of all that was read.
bool Decoder::takes_padding() const {
  const bool has_states = std::ranges::any_of(
      layout_.caches, [](const CacheEntry& e) { return !e.past.empty() && !e.of_encoder && e.sequence_axis < 0; });
  const bool counts = std::ranges::any_of(
      model_->nodes(), [](const TranslatedNode& node) { return node.label.op_type == "GroupQueryAttention"; });
  return layout_.inputs.contains("attention_mask") && !has_states && !counts;
}

// Takes them by padding, by each one's own length in the whole buffer, or as nothing but states of a fixed size is
// known of the sequences.
bool Decoder::takes_lengths() const {
  const bool has_states_alone =
      layout_.inputs.size() == 1 && takes_past() &&
      std::ranges::all_of(layout_.caches, [](const CacheEntry& e) { return e.sequence_axis < 0 && !e.of_encoder; });
  return !fixed_batch() && (takes_padding() || past_form() == PastForm::Whole || has_states_alone);
}

PastForm Decoder::past_form() const {
  return takes_padding() ? onnxtorch::past_form_with_padding(model_->inputs(), layout_)
                         : onnxtorch::past_form_without_padding(model_->proto().graph(), layout_);
}

FedInputs Decoder::feeds(const StepInputs& step, const EncoderStates& encoder, const Cache& cache) const {
  const std::vector<InputSpec>& inputs = model_->inputs();
  FedInputs feeds(inputs.size());
  for (const auto& [role, i] : roles_) {
    const InputSpec& input = inputs[i];
    at::Tensor value;
    if (role == "input_ids") {
      value = step.ids;
    } else if (role == "attention_mask") {
      value = shaped_mask(input, step, cache);
    } else if (role == "position_ids") {
      value = shaped_positions(input, step);
    } else if (role == "use_cache_branch") {
      value = number(input, step.past_length > 0 ? 1 : 0);
    } else if (role == "total_sequence_length") {
      value = number(input, step.mask.size(1));
    } else if (role == "past_sequence_length") {
      value = number(input, step.past_length);
    } else if (role == "num_logits_to_keep") {
      value = number(input, step.all_logits ? step.ids.size(1) : 1);
    } else if (role == "seqlens_k") {
      value = step.mask.sum(1) - 1;
      if (input.dims && input.dims->size() == 2) value = value.unsqueeze(1);
    } else {
      const auto found = encoder.find(role);
      if (found == encoder.end()) {
        throw InputError("the decoder takes \"" + input.name + "\", and no encoder is there to give it");
      }
      value = found->second;
    }
    feeds[i] = fed(input, value);
  }
  for (size_t c = 0; c < layout_.caches.size(); ++c) {
    const CacheEntry& entry = layout_.caches[c];
    if (entry.past.empty()) continue;
    const InputSpec& input = inputs[pasts_[c]];
    const at::Tensor past = cache.past(entry.name);
    feeds[pasts_[c]] = Fed{input.type, past.defined() ? past : empty_past(input, entry, step.ids.size(0))};
  }
  return feeds;
}

at::Tensor Decoder::run(const StepInputs& step, const EncoderStates& encoder, Cache& cache) const {
  const int64_t count = step.ids.size(1);
  cache.begin_step(count);
  Targets targets(model_->outputs().size());
  for (size_t c = 0; c < layout_.caches.size(); ++c) {
    const CacheEntry& entry = layout_.caches[c];
    const at::Tensor target = entry.present.empty() ? at::Tensor() : cache.target(entry.name, count);
    if (target.defined() && target.is_cpu()) targets[presents_[c]] = target;
  }
  const WantedOutputs wanted{.all_elements = step.all_logits && count > 1};
  const auto result =
      model_->run(feeds(step, encoder, cache), model_->new_strings(), wanted, nullptr, nullptr, targets);
  for (size_t c = 0; c < layout_.caches.size(); ++c) {
    const CacheEntry& entry = layout_.caches[c];
    if (!entry.present.empty()) cache.take(entry.name, result.values[presents_[c]].toTensor(), count);
  }
  cache.end_step(count);
  return result.values[logits_].toTensor();
}

}  // namespace onnxtorch
