// A translated model as a TorchScript module: its initializers are parameters and buffers, its graph the method
// forward.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

#include "graph/program.h"
#include "onnx_torch/error.h"

namespace onnxtorch {

// The names by which the program's parts are found in the module.
struct ModuleNames {
  std::vector<std::string> arguments;             // those of forward, one for each input of the graph
  std::vector<std::vector<std::string>> weights;  // one for each of weights(): attributes from the module down
  std::string record;                             // the text of the attribute "onnx_names"
};

// Gives the initializers that the graph reads, as places in Program::constants. One whose name another has too is a
// constant.
std::vector<size_t> weights(const Program& program);

// Gives the inputs that forward takes.
std::vector<std::string> arguments(const Program& program);

// Throws UnsupportedError where the model needs a StringPool, which only this library's own runs have.
void refuse_text(const Program& program);

struct CustomOperator {
  std::string name;  // "onnx_torch::roi_align"
  NodeLabel node;
};
std::vector<CustomOperator> custom_operators(const Program& program);

// Makes the module. Constants that are no initializers lie in "_constants" as "0", "1", …, so that they move with the
// module. The device is that of the weights or, where there are none, of the first tensor that comes in.
torch::jit::Module script_module(const Program& program, const ModuleNames& names);

}  // namespace onnxtorch
