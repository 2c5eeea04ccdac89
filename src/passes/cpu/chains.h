// Element-wise operators that work on one another's results, and reductions of these, become one operator.
#pragma once

#include <cstddef>

#include "graph/program.h"

namespace onnxtorch {

// The elements of a result from which on its operator alone is a chain.
constexpr size_t kLeastAlone = 1 << 12;

void find_chains(Program& program);

// The same for CUDA, where its kernels are there: shorter chains, without reductions.
void find_cuda_chains(Program& program);

}  // namespace onnxtorch
