// Passes make a graph cheaper and keep what it computes. Each has a name, can be left out, and is written out before
// and after where ONNX_TORCH_DUMP names it.
#pragma once

#include <span>

#include "translate/program.h"

namespace onnxtorch {

struct Pass {
  const char* name;
  const char* what;  // it does, in a line
  void (*run)(Program& program);
};

// The passes that know no device, in their order.
std::span<const Pass> passes();

}  // namespace onnxtorch
