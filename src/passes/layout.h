// Steps that only move elements about are brought together, and those that undo one another taken out.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void simplify_layout(Program& program);

}  // namespace onnxtorch
