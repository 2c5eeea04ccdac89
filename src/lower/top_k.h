// The k largest or smallest elements of rows.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void find_top_k(Program& program);

}  // namespace onnxtorch
