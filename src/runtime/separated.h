// The separation of results from memory that something else uses, too.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "runtime/targets.h"

namespace onnxtorch {

// Gives a result memory of its own. Whatever else refers to it after a run (an input, a constant, another result)
// counts as a use, so the last one that it is asked for keeps the memory.
c10::IValue separated(c10::IValue value);

// Separates results, but not one that is the caller's own memory.
void separate(std::vector<c10::IValue>& results, const Targets& targets);

}  // namespace onnxtorch
