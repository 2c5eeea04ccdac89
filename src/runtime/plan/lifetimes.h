// Where the values of a plan lie, and until when.
#pragma once

#include "runtime/plan/plan.h"

namespace onnxtorch {

// Gives each buffer its kind and its place, and each step the buffers and slots that it is the last to need.
void arrange(Plan& plan);

}  // namespace onnxtorch
