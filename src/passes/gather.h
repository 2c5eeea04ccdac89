// Gather, GatherElements: what indices name, where negative ones count from the end.
#pragma once

#include "translate/program.h"

namespace onnxtorch {

void find_gather(Program& program);

}  // namespace onnxtorch
