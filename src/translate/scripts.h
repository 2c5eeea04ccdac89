// The functions of src/ops/scripts, read on first use.
#pragma once

#include <ATen/core/function_schema.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <memory>
#include <optional>
#include <string>

#include "base/fork_safe.h"

namespace onnxtorch {

struct CompiledScript;

class Script {
 public:
  Script(const CompiledScript& compiled, std::shared_ptr<torch::jit::Graph> read, const Script* without_steps);

  const std::shared_ptr<torch::jit::Graph> graph;
  const c10::FunctionSchema schema;
  const bool kept;  // whether it is an operator as well, onnx_torch::NAME
  // The script NAME_of_sizes, where there is one: it takes the same, and gives results of the same sizes without going
  // through all steps.
  const Script* const of_sizes;
  const bool deterministic;
  const bool writes;  // to something else than lists of its own

  // To run it while translating. Made on first use.
  const torch::jit::Code& code() const;

 private:
  mutable Once once_;
  mutable std::optional<torch::jit::Code> code_;
};

// What to run of a script, whose arguments end the stack: where they are sizes without numbers, sizes will do.
const torch::jit::Code& code_for(const Script& script, const torch::jit::Stack& stack);

// Throws std::logic_error where no script has that name.
const Script& find_script(const std::string& name);

// The script that is this operator; null where it is none. The operator runs the script.
const Script* kept_script(c10::Symbol kind);

// Whether a graph calls something that gives another result each time.
bool is_deterministic(const torch::jit::Block& block);

}  // namespace onnxtorch
