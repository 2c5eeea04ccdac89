// Sequences that a decoder has read.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "language/cache.h"
#include "language/decoder.h"
#include "language/parts.h"

namespace onnxtorch {

class DecoderState;

// Some sequences of a state.
struct StateRows {
  const DecoderState* state;
  std::vector<int64_t> rows;
};

// The sequences with what the decoder remembers of them. A copy shares tensors, and nothing writes to one.
class DecoderState {
 public:
  // Makes a state that never reads more than `max_length` tokens, for which its cache has room then.
  DecoderState(std::shared_ptr<const LanguageModelParts> parts, EncoderStates encoder,
               std::optional<int64_t> max_length);

  int64_t batch_size() const { return ids_.defined() ? ids_.size(0) : 0; }
  int64_t length() const { return ids_.defined() ? ids_.size(1) : 0; }
  std::optional<int64_t> max_length() const { return max_length_; }
  void set_max_length(int64_t max_length);
  const LanguageModelParts& parts() const { return *parts_; }
  std::vector<Tokens> tokens() const;  // without padding

  // Reads more tokens. Gives the logits of the last one, or of all that are appended, [batch, count, vocabulary], in
  // float32 on the CPU. A mask that is not defined says that nothing is padding.
  at::Tensor append(const at::Tensor& ids, const at::Tensor& mask, bool all);
  void rewind(int64_t count);
  void reorder(const at::Tensor& rows);

  // Tells whether `joined` may take the state, apart from lengths.
  bool can_join() const { return encoder_.empty() && cache_.can_join(); }

  // Makes a state that has read all these sequences, which need not be of one length where the model takes that.
  static DecoderState joined(const std::vector<StateRows>& parts);

 private:
  void check_length(int64_t length) const;
  at::Tensor read(int64_t begin, int64_t end, bool all);  // of ids_ and mask_

  std::shared_ptr<const LanguageModelParts> parts_;
  EncoderStates encoder_;
  std::optional<int64_t> max_length_;
  Cache cache_;
  at::Tensor ids_, mask_;  // [batch, length]
};

}  // namespace onnxtorch
