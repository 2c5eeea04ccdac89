// Sequences of tokens, and the tensors that models read.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "onnx_torch/language_model.h"

namespace onnxtorch {

struct Padded {
  at::Tensor ids, mask;  // [rows, longest], int64; the mask is 0 at padding
};

enum class Side : uint8_t { Left, Right };

// Fills sequences up to one length. Throws InputError where there is no sequence, or one without tokens.
Padded padded(const std::vector<Tokens>& sequences, Side side);

bool of_one_length(const std::vector<Tokens>& sequences);

// Gives the tokens as [rows, 1].
at::Tensor column(const Tokens& tokens);

}  // namespace onnxtorch
