#include "language/decoder_state.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace onnxtorch {
namespace {

at::Tensor with_more(const at::Tensor& before, const at::Tensor& more) {
  return before.defined() ? at::cat({before, more}, 1) : more;
}

void check(const at::Tensor& ids, const at::Tensor& mask, int64_t batch) {
  if (ids.dim() != 2 || ids.size(1) == 0) throw InputError("tokens must be [batch, count], and one at least");
  if (mask.defined() && mask.sizes() != ids.sizes()) throw InputError("a mask must have the sizes of the tokens");
  if (batch != 0 && ids.size(0) != batch) {
    throw InputError("the state has " + std::to_string(batch) + " sequences, not " + std::to_string(ids.size(0)));
  }
}

// Counts the columns at the left that are padding in all of the chosen rows. The mask is 0 at padding.
int64_t padding_of(const at::Tensor& mask, const std::vector<int64_t>& rows) {
  const auto of = mask.accessor<int64_t, 2>();
  int64_t least = mask.size(1);
  for (const int64_t row : rows) {
    int64_t count = 0;
    while (count < least && of[row][count] == 0) ++count;
    least = count;
  }
  return least;
}

}  // namespace

DecoderState::DecoderState(std::shared_ptr<const LanguageModelParts> parts, EncoderStates encoder,
                           std::optional<int64_t> max_length)
    : parts_(std::move(parts)),
      encoder_(std::move(encoder)),
      max_length_(max_length),
      cache_(parts_->caches, parts_->past_form, max_length) {
  check_length(0);
}

void DecoderState::check_length(int64_t length) const {
  if (max_length_.value_or(1) < 1)
    throw InputError("max_length must be 1 or more, not " + std::to_string(*max_length_));
  if (max_length_ && length > *max_length_) {
    throw InputError("there is room for " + std::to_string(*max_length_) + " tokens, as max_length says, and not for " +
                     std::to_string(length) + "; give a larger max_length, or rewind");
  }
}

void DecoderState::set_max_length(int64_t max_length) {
  max_length_ = max_length;
  check_length(length());
  cache_.set_max_length(max_length);
}

at::Tensor DecoderState::append(const at::Tensor& ids, const at::Tensor& mask, bool all) {
  check(ids, mask, batch_size());
  if (mask.defined() && !parts_->next().takes_padding() && !mask.to(at::kBool).all().item<bool>()) {
    throw InputError("sequences of different lengths cannot be one batch of this model");
  }
  check_length(length() + ids.size(1));
  // A copy reads the tokens, so that what fails leaves the state as it was.
  DecoderState longer = *this;
  const int64_t before = length();
  longer.ids_ = with_more(ids_, ids.to(at::kCPU, at::kLong));
  longer.mask_ = with_more(mask_, mask.defined() ? mask.to(at::kCPU, at::kLong) : at::ones_like(ids, at::kLong));
  at::Tensor logits = longer.read(before, longer.length(), all).to(at::kCPU, at::kFloat);
  *this = std::move(longer);
  return logits;
}

at::Tensor DecoderState::read(int64_t begin, int64_t end, bool all) {
  const bool has_past = !parts_->caches->empty();
  const int64_t from = has_past ? begin : 0;
  std::vector<at::Tensor> logits;
  for (int64_t at = from; at < end;) {
    const Decoder& decoder = has_past && at > 0 ? parts_->next() : parts_->first;
    const int64_t count = std::min(end - at, decoder.fixed_count().value_or(end - at));
    const StepInputs step{ids_.narrow(1, at, count).contiguous(), mask_.narrow(1, 0, at + count).contiguous(), at, all};
    logits.push_back(decoder.run(step, encoder_, cache_));
    at += count;
  }
  if (!all) return logits.back().select(1, -1);
  const at::Tensor of_all = logits.size() == 1 ? logits[0] : at::cat(logits, 1);
  return of_all.narrow(1, of_all.size(1) - (end - begin), end - begin);
}

std::vector<Tokens> DecoderState::tokens() const {
  std::vector<Tokens> rows(static_cast<size_t>(batch_size()));
  if (rows.empty()) return rows;
  const auto ids = ids_.accessor<int64_t, 2>(), mask = mask_.accessor<int64_t, 2>();
  for (int64_t row = 0; row < batch_size(); ++row) {
    for (int64_t i = 0; i < length(); ++i) {
      if (mask[row][i] != 0) rows[static_cast<size_t>(row)].push_back(ids[row][i]);
    }
  }
  return rows;
}

void DecoderState::rewind(int64_t count) {
  if (count < 0 || count > length()) {
    throw InputError("a state of " + std::to_string(length()) + " tokens cannot go back by " + std::to_string(count));
  }
  if (count == 0) return;
  const int64_t kept = length() - count;
  DecoderState shorter(parts_, encoder_, max_length_);
  if (kept > 0) {
    const at::Tensor ids = ids_.narrow(1, 0, kept), mask = mask_.narrow(1, 0, kept);
    if (cache_.can_rewind()) {
      shorter = *this;
      shorter.ids_ = ids;
      shorter.mask_ = mask;
      shorter.cache_.rewind(kept);
    } else {
      shorter.append(ids, mask, false);  // a state of a fixed size does not tell those before
    }
  }
  *this = std::move(shorter);
}

DecoderState DecoderState::joined(const std::vector<StateRows>& parts) {
  if (parts.empty()) throw InputError("there is no state to join");
  const DecoderState& first = *parts.front().state;
  std::vector<CachePart> caches;
  int64_t batch = 0, longest = 0;
  for (const auto& [state, rows] : parts) {
    if (state->parts_ != first.parts_) throw InputError("states of different models cannot be joined");
    if (state->length() == 0 || rows.empty()) throw InputError("a state to be joined must have read a sequence");
    for (const int64_t row : rows) {
      if (row < 0 || row >= state->batch_size()) throw InputError("there is no sequence " + std::to_string(row));
    }
    if (!state->can_join()) {
      throw InputError("states of this model cannot be joined: its caches are not of the tokens that were read");
    }
    const int64_t padding = padding_of(state->mask_, rows);
    caches.push_back({&state->cache_, rows, padding});
    batch += static_cast<int64_t>(rows.size());
    longest = std::max(longest, state->length() - padding);
  }
  DecoderState result(first.parts_, {}, {});
  result.ids_ = at::zeros({batch, longest}, at::kLong);
  result.mask_ = at::zeros({batch, longest}, at::kLong);
  int64_t row = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const DecoderState& state = *parts[i].state;
    const int64_t count = state.length() - caches[i].padding;
    for (const int64_t sequence : parts[i].rows) {
      result.ids_[row]
          .narrow(0, longest - count, count)
          .copy_(state.ids_[sequence].narrow(0, caches[i].padding, count));
      result.mask_[row]
          .narrow(0, longest - count, count)
          .copy_(state.mask_[sequence].narrow(0, caches[i].padding, count));
      ++row;
    }
  }
  const bool is_even = result.mask_.to(at::kBool).all().item<bool>();
  if (!is_even && !first.parts_->next().takes_lengths()) {
    throw InputError("sequences of different lengths cannot be one batch of this model");
  }
  result.cache_ = Cache::joined(caches, longest);
  return result;
}

void DecoderState::reorder(const at::Tensor& rows) {
  if (batch_size() == 0) return;
  ids_ = ids_.index_select(0, rows);
  mask_ = mask_.index_select(0, rows);
  cache_.reorder(rows);
  for (auto& [name, tensor] : encoder_) tensor = tensor.index_select(0, rows.to(tensor.device()));
}

}  // namespace onnxtorch
