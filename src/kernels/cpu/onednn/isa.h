// For which products oneDNN uses instructions of their own on this CPU.
#pragma once

namespace onnxtorch::onednn {

// Without them sums of two products of 8 bits saturate at 16.
bool has_int8_products();

// Without them oneDNN has no products of bfloat16, or computes them in float32 with a conversion for each use.
bool has_bfloat16_products();

// Whether its logistic function gives NaN for NaN; that of SSE4.1 gives 0.
bool keeps_nan_in_sigmoid();

// Whether its Gelu is a good one. Below AVX-512 that by the error function gives 0 for a negative number too large for
// another result, and not -0, and that by tanh takes several times as long as a chain.
bool has_good_gelu();

}  // namespace onnxtorch::onednn
