// From a translated program to one that runs well: the passes, the device, and the lowering for it.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <vector>

#include "onnx_torch/options.h"
#include "passes/pass.h"
#include "translate/program.h"

namespace onnxtorch {

// All passes that a model goes through on a device, in their order.
std::vector<Pass> passes_for(c10::Device device);

// Is told each step when it is done, by its name.
using Watcher = std::function<void(const char* step, const Program& program)>;

// The program, placed on a device and as fast as the options let it be.
Program optimized(Program program, c10::Device device, const Options& options, const Watcher& watcher = {});

// Throws InputError where an option names a pass or a precision that is not there.
void check_options(const Options& options, c10::Device device);

}  // namespace onnxtorch
