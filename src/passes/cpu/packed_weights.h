// The weights that a program's packed operators have laid out.
#pragma once

#include <string>
#include <vector>

#include "base/saved_weights.h"
#include "graph/program.h"

namespace onnxtorch {

// What each packed operator of a program for the CPU has laid out so far; and the same of an equal program, which this
// one then need not lay out any more.
std::vector<std::vector<SavedWeights>> saved_weights(const Program& program);
void take_weights(const Program& program, std::vector<std::vector<SavedWeights>> saved);

// Lays out what the inputs' known sizes ask for, before the first run does.
void lay_out_weights(const Program& program);

// What layouts depend on, besides the CPU.
std::string layouts_version();

}  // namespace onnxtorch
