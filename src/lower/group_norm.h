// Normalization of groups of channels, and of single channels, of tensors that lie channels-last.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void replace_group_norms(Program& program);

}  // namespace onnxtorch
