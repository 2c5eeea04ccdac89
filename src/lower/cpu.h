// Lowering for the CPU: convolutions and products become operators of oneDNN, with the weights laid out for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <vector>

#include "passes/pass.h"

namespace onnxtorch {

// The passes for the CPU that need a graph as it was translated.
std::span<const Pass> first_cpu_passes();

// Those that need a graph in which constants are not computed yet.
std::span<const Pass> early_cpu_passes();

// Those that need computed constants, before patterns are sought.
std::span<const Pass> middle_cpu_passes();

// The other passes for the CPU, in their order.
std::span<const Pass> cpu_passes();

// Weights as an operator has laid them out.
struct SavedWeights {
  std::string layout;
  at::Tensor bytes;
};

// What each packed operator of a lowered program has laid out so far; and the same of an equal program, which this one
// then need not lay out any more.
std::vector<std::vector<SavedWeights>> saved_weights(const Program& program);
void take_weights(const Program& program, std::vector<std::vector<SavedWeights>> saved);

// Lays out what the inputs' known sizes ask for, before the first run does.
void lay_out_weights(const Program& program);

// What layouts depend on, besides the CPU.
std::string layouts_version();

}  // namespace onnxtorch
