// The functions of src/ops/scripts. The body of one is read on first use: that of a kept one mostly never.
#pragma once

#include <ATen/core/function_schema.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/fork_safe.h"

namespace onnxtorch {

struct CompiledScript;

class Script {
 public:
  // The graph is that of `compiled` unless another is given.
  Script(const CompiledScript& compiled, const Script* without_steps,
         std::shared_ptr<torch::jit::Graph> graph = nullptr);

  const c10::FunctionSchema schema;
  const bool kept;  // the script is an operator as well, onnx_torch::NAME
  // The script NAME_of_sizes, where there is one: it takes the same, and gives results of the same sizes without going
  // through all steps.
  const Script* const of_sizes;

  const std::shared_ptr<torch::jit::Graph>& graph() const { return body().graph; }
  bool is_deterministic() const { return body().is_deterministic; }
  bool writes() const { return body().writes; }  // tells whether it writes to something else than lists of its own

  // Gives the code that runs the script while translating. It is made on first use.
  const torch::jit::Code& code() const;

 private:
  struct Body {
    std::shared_ptr<torch::jit::Graph> graph;
    bool is_deterministic, writes;
  };
  const Body& body() const;

  const std::string_view text_;
  const std::shared_ptr<torch::jit::Graph> given_;
  mutable Once read_, compiled_;
  mutable std::optional<Body> body_;
  mutable std::optional<torch::jit::Code> code_;
};

// Gives the code to run of a script, whose arguments end the stack: where one of them is a tensor of sizes without
// elements, the code of NAME_of_sizes will do.
const torch::jit::Code& code_for(const Script& script, const torch::jit::Stack& stack);

// Finds a script by its name. Throws std::logic_error where no script has it.
const Script& find_script(const std::string& name);

// Gives the script that is this operator; null where it is none. The operator runs the script.
const Script* kept_script(c10::Symbol kind);

// A function that tells which of these operators stay in a graph, for the passes of a device to find; null where none
// does, and the nodes of its script stand for each.
using KeptScripts = bool (*)(c10::Symbol kind);

}  // namespace onnxtorch
