// Products with constant weights of few bits, as the translators of onnxruntime's operators write them.
#pragma once

#include <ATen/core/symbol.h>

#include <optional>

#include "graph/constants.h"
#include "kernels/standard/linear_of_bits.h"

namespace torch::jit {
struct Node;
}

namespace onnxtorch {

// The CPU's products with weights of few bits: in float, and by rows that are rounded to 8 bits.
inline const auto kPackedNbits = c10::Symbol::fromQualString("onnx_torch::packed_nbits");
inline const auto kPackedNbitsInt8 = c10::Symbol::fromQualString("onnx_torch::packed_nbits_int8");

// Tells whether a script is a product with a weight of few bits.
bool has_few_bits(c10::Symbol script);

// Gives the weight of a product of floats whose weight is constant. What does not fit is left to the script, which
// refuses.
std::optional<LinearOfBits> linear_of_bits(const torch::jit::Node* node, const Constants& constants);

}  // namespace onnxtorch
