// A program ready to run. Immutable: any number of threads may run one at the same time.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/work_memory.h"
#include "graph/program.h"
#include "runtime/plan/plans.h"
#include "runtime/targets.h"

namespace onnxtorch {

class Executable {
 public:
  // Keeps what a run does as a plan (runtime/plan), for at most `plans` different sizes of the inputs. Runs take their
  // large intermediate results from `memory`.
  explicit Executable(Program program, size_t plans = 0,
                      std::shared_ptr<WorkMemory> memory = std::make_shared<WorkMemory>());

  // Runs the program on one value for each graph input of the caller, in order, in storage form and on the program's
  // device; results come likewise. No result shares memory with an input, a constant or another result. The caller
  // keeps the inputs until it returns. A result may be the caller's target for it, which then holds the result.
  std::vector<c10::IValue> run(std::span<const c10::IValue> inputs, const c10::intrusive_ptr<StringPool>& strings,
                               Targets targets = {}) const;

  // Takes what is known of sizes for true from now on, which runs look at before (runtime/running_graph).
  void trust_sizes() const;

  // Gives back the memory that earlier runs have left for later ones.
  void trim() const {
    plans_.clear();
    memory_->clear();
  }

  std::vector<std::string> plan_texts() const { return plans_.texts(); }

  const Program& program() const { return program_; }

 private:
  std::vector<c10::IValue> interpreted(std::span<const c10::IValue> inputs,
                                       const c10::intrusive_ptr<StringPool>& strings, const Targets& targets) const;

  const torch::jit::Code& code() const;

  Program program_;
  torch::jit::Code code_;
  mutable std::once_flag trusts_;
  mutable std::optional<torch::jit::Code> trusting_;
  mutable std::atomic<bool> has_trust_ = false;
  std::vector<Growth> growths_;
  std::shared_ptr<WorkMemory> memory_;
  mutable Plans plans_;
};

}  // namespace onnxtorch
