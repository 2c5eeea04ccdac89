// The way from a translated program to one that runs well: the passes, the device, and the lowering for it.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <vector>

#include "graph/program.h"
#include "onnx_torch/options.h"
#include "passes/order.h"
#include "translate/scripts.h"

namespace onnxtorch {

struct TranslateOptions;

// A function that is told each step when it is done, by its name.
using Watcher = std::function<void(const char* step, const Program& program)>;

// Tells which scripts are kept, as one node each, in what goes to `optimized`.
KeptScripts kept_scripts(const Options& options, c10::Device device);

// Places the program on a device, and makes it as fast as the options let it be.
Program optimized(Program program, c10::Device device, const Options& options, const Watcher& watcher = {});

// Throws InputError where an option has a value that it may not have.
void check_options(const Options& options, c10::Device device);

// Gives what the options say about translating a model.
TranslateOptions translate_options(const Options& options);

}  // namespace onnxtorch
