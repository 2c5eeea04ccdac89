// Element-wise operators that work on one another's results, and reductions of these, become one operator.
#pragma once

#include <cstddef>

#include "graph/program.h"

namespace onnxtorch {

// The number of elements of a result from which on its operator alone is a chain.
constexpr size_t kLeastAlone = 1 << 12;

void find_chains(Program& program);

// Does the same for CUDA, where its kernels are there: in shorter chains, without reductions.
void find_cuda_chains(Program& program);

}  // namespace onnxtorch
