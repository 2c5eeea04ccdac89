// Attention on the CPU: a softmax between two products of matrices, the weights of a few rows at a time.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void find_attention(Program& program);

}  // namespace onnxtorch
