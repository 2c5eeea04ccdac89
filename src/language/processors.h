// The processors that change the scores of the tokens that may come next: rules of the text so far, and what sampling
// leaves out.
#pragma once

#include <vector>

#include "onnx_torch/language_model.h"

namespace onnxtorch {

// Throws InputError where an option has no meaning.
void check_options(const GenerationOptions& options);

// Gives the processors in the order of transformers: the rules, the caller's own ones, and what sampling leaves out.
std::vector<LogitsProcessor> processors_of(const GenerationOptions& options, const std::vector<Tokens>& prompts);

// Tells whether the processors ask for the tokens so far.
bool read_sequences(const GenerationOptions& options);

at::Tensor processed(const std::vector<LogitsProcessor>& processors, const std::vector<Tokens>& sequences,
                     at::Tensor scores);

}  // namespace onnxtorch
