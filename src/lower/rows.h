// Softmax, LayerNorm, RMSNorm, and what classifiers do with the scores of a few classes: functions of the rows of a
// tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include "translate/program.h"

namespace onnxtorch {

void replace_rows(Program& program);

// Both are contiguous, of floats, not empty, and may be the same. Gives the result.
at::Tensor softmax_into(const at::Tensor& y, const at::Tensor& x);

}  // namespace onnxtorch
