// Softmax, LayerNorm, RMSNorm, and what classifiers do with the scores of a few classes: functions of the rows of a
// tensor.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void replace_rows(Program& program);

}  // namespace onnxtorch
