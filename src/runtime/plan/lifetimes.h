// The places where the values of a plan lie, and how long they lie there.
#pragma once

#include "runtime/plan/plan.h"

namespace onnxtorch {

// Gives each buffer its kind and its place, and each step the buffers and slots that it is the last to need.
void arrange(Plan& plan);

}  // namespace onnxtorch
