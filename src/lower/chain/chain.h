// A chain of element-wise operators on floats and masks (bool tensors), which may end in reductions, as one operator:
// what it computes, and how it runs. Where a run's tensors are not as expected, ATen computes the operators one by one.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/custom_class.h>

#include <array>
#include <memory>
#include <vector>

#include "lower/chain/kernel.h"
#include "lower/recent.h"

namespace onnxtorch {

// Values are numbered: the inputs, the constants, what each instruction gives, then what each reduction gives.
struct ChainProgram {
  struct Instruction {
    chain::Op op;
    std::vector<size_t> operands;
    float a = 0, b = 0;
  };

  struct Reduction {
    chain::Reducer reducer;
    bool is_mean = false;
    std::vector<int64_t> dims = {};  // none are all
    bool keepdim = false;
    size_t value = 0;  // an instruction's
  };

  std::vector<uint8_t> inputs_are_masks;
  std::vector<float> constants;
  std::vector<Instruction> instructions;
  std::vector<Reduction> reductions;
  std::vector<size_t> results;  // instructions' and reductions' values

  size_t first_instruction() const { return inputs_are_masks.size() + constants.size(); }
  size_t first_reduction() const { return first_instruction() + instructions.size(); }
};

struct ChainPlan;

class Chain : public torch::CustomClassHolder {
 public:
  // `plain` computes the same by ATen.
  Chain(ChainProgram program, const std::shared_ptr<torch::jit::Graph>& plain);

  // A result may take the memory of an input to which nothing else refers.
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) const;

 private:
  std::shared_ptr<const ChainPlan> plan(at::TensorList inputs) const;
  bool fits(at::TensorList inputs) const;
  std::vector<at::Tensor> by_aten(at::TensorList inputs) const;

  const ChainProgram program_;
  const torch::jit::Code plain_;
  mutable Recent<std::vector<int64_t>, ChainPlan> plans_{8};
};

// Declares the class and the operator to TorchScript, once.
void register_chain();

}  // namespace onnxtorch
