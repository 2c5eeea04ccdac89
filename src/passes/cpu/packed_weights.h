// The laid weights of a program's packed operators.
#pragma once

#include <string>
#include <vector>

#include "base/saved_weights.h"
#include "graph/program.h"

namespace onnxtorch {

// Gives what each packed operator of a program for the CPU has laid out so far, or takes the same of an equal program,
// so that this one need not lay it out any more.
std::vector<std::vector<SavedWeights>> saved_weights(const Program& program);
void take_weights(const Program& program, std::vector<std::vector<SavedWeights>> saved);

// Lays out the weights that the inputs' known sizes ask for, before the first run does.
void lay_out_weights(const Program& program);

// Gives a text for what layouts depend on, besides the CPU.
std::string layouts_version();

}  // namespace onnxtorch
