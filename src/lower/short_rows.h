// Softmax, norm and largest element of short rows, as classifiers of few classes have them. ATen's operators take
// longer to prepare, and to begin each row, than the work itself takes.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void find_short_rows(Program& program);

}  // namespace onnxtorch
