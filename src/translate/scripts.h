// The functions of src/ops/scripts, compiled by TorchScript's own front end on first use.
#pragma once

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <optional>
#include <string>

namespace onnxtorch {

struct Script {
  torch::jit::GraphFunction* function;
  torch::jit::Code code;  // to run it while translating
  bool deterministic;
  bool writes;  // to its arguments, or to lists of its own
  bool kept;    // whether it is an operator as well, onnx_torch::NAME
  // The script NAME_of_sizes, where there is one: it takes the same, and gives results of the same sizes without going
  // through all steps.
  const Script* of_sizes = nullptr;
};

// What to run of a script, whose arguments end the stack: where they are sizes without numbers, sizes will do.
const torch::jit::Code& code_for(const Script& script, const torch::jit::Stack& stack);

// Throws std::logic_error where no script has that name, and TorchScript's own error where one does not compile.
const Script& find_script(const std::string& name);

// The script that is this operator; null where it is none. The operator runs the script.
const Script* kept_script(c10::Symbol kind);

// Whether a graph calls something that gives another result each time.
bool is_deterministic(const torch::jit::Block& block);

}  // namespace onnxtorch
