#pragma once

#include <ATen/core/ivalue.h>

namespace onnxtorch {

// Gives a result memory of its own. Whatever else refers to it after a run (an input, a constant, another result)
// counts as a use, so the last one that it is asked for keeps the memory.
c10::IValue separated(c10::IValue value);

}  // namespace onnxtorch
