// One model that reads tokens and gives logits, with what its inputs and outputs are.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "language/cache.h"
#include "onnx_torch/language_model.h"
#include "runtime/model.h"

namespace onnxtorch {

// The inputs of one run, besides caches. All are int64.
struct StepInputs {
  at::Tensor ids;   // [batch, count]
  at::Tensor mask;  // [batch, length of the past + count]: 0 at padding
  int64_t past_length = 0;
  bool all_logits = false;  // whether those of each token are wanted, not of the last alone
};

// The encoder's results, by the names that Layout has for the decoder's inputs.
using EncoderStates = std::map<std::string, at::Tensor>;

class Decoder {
 public:
  Decoder(std::shared_ptr<const PreparedModel> model, const Mapping& mapping);

  const Layout& layout() const { return layout_; }
  bool takes_past() const;
  std::optional<int64_t> fixed_count() const { return ids_axis(1); }  // the number of tokens in a run
  std::optional<int64_t> fixed_batch() const { return ids_axis(0); }
  // Tells whether sequences of different lengths may be in one batch, filled up at the left.
  bool takes_padding() const;
  // Tells whether sequences that have read different numbers of tokens may go on in one batch.
  bool takes_lengths() const;
  PastForm past_form() const;

  // Runs the model. Gives the logits, [batch, count or 1, vocabulary]. The cache takes what the run gives it.
  at::Tensor run(const StepInputs& step, const EncoderStates& encoder, Cache& cache) const;

 private:
  std::optional<int64_t> ids_axis(size_t axis) const;
  FedInputs feeds(const StepInputs& step, const EncoderStates& encoder, const Cache& cache) const;

  std::shared_ptr<const PreparedModel> model_;
  Layout layout_;
  size_t logits_ = 0;                    // the index of an output
  std::vector<size_t> presents_;         // those of outputs, for each cache that has one, in the layout's order
  std::map<std::string, size_t> roles_;  // indices of inputs
  std::vector<size_t> pasts_;
};

}  // namespace onnxtorch
