// A program ready to run. Immutable: any number of threads may run one at the same time.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <memory>
#include <span>
#include <vector>

#include "base/work_memory.h"
#include "graph/program.h"

namespace onnxtorch {

class Executable {
 public:
  explicit Executable(Program program);

  // One value for each graph input of the caller, in order, in storage form and on the program's device; results
  // likewise. No result shares memory with an input, a constant or another result. The caller keeps the inputs until it
  // returns.
  std::vector<c10::IValue> run(std::span<const c10::IValue> inputs,
                               const c10::intrusive_ptr<StringPool>& strings) const;

  // Gives back the memory that earlier runs have left for later ones.
  void trim() const { memory_->clear(); }

  const Program& program() const { return program_; }

 private:
  Program program_;
  torch::jit::Code code_;
  std::shared_ptr<WorkMemory> memory_;
};

}  // namespace onnxtorch
