// Lowering for a device: the one place where a translated graph learns which device it runs on.
#pragma once

#include <c10/core/Device.h>

#include "graph/program.h"

namespace onnxtorch {

// Gives the program with its constants on `device`; the graph is a copy where it must change.
Program placed(Program program, c10::Device device);

}  // namespace onnxtorch
