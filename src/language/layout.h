// The roles of a decoder's inputs and outputs, told from their names, types and shapes.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "onnx_torch/language_model.h"
#include "onnx_torch/types.h"

namespace onnxtorch {

// Finds the layout. Throws InputError where an input is nothing that is known, and names it.
Layout find_layout(const std::vector<InputSpec>& inputs, const std::vector<OutputSpec>& outputs,
                   const Mapping& mapping);

// Gives the names that an output has which is the logits for sure.
std::set<std::string> logits_names(const Mapping& mapping);

}  // namespace onnxtorch
