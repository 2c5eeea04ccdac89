// The instructions of oneDNN on this CPU: the products for which it has special ones, and the quality of its
// activations.
#pragma once

namespace onnxtorch::onednn {

// Tells whether there are instructions for products of int8. Without them sums of two products saturate at 16 bits.
bool has_int8_products();

// Tells whether there are instructions for products of bfloat16. Without them oneDNN has no such products, or computes
// them in float32 with a conversion for each use.
bool has_bfloat16_products();

// Tells whether oneDNN's logistic function gives NaN for NaN; that of SSE4.1 gives 0.
bool keeps_nan_in_sigmoid();

// Tells whether oneDNN's Gelu is a good one. Below AVX-512 the one by the error function gives 0, and not -0, for a
// negative number too large for another result, and the one by tanh takes several times as long as a chain.
bool has_good_gelu();

}  // namespace onnxtorch::onednn
