// A chain of element-wise operators on floats and masks (bool tensors), which may end in reductions, as one operator:
// what it computes, and how it runs. Where a run's tensors are not as expected, ATen computes the operators one by one.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/custom_class.h>

#include <memory>
#include <vector>

#include "base/planned_call.h"
#include "base/recent.h"
#include "base/shape_key.h"
#include "kernels/cpu/chain/program.h"

namespace onnxtorch {

struct ChainPlan;

class Chain : public torch::CustomClassHolder {
 public:
  // `plain` computes the same by ATen.
  Chain(ChainProgram program, const std::shared_ptr<torch::jit::Graph>& plain);

  // Runs the chain. A result may take the memory of an input to which nothing else refers.
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) const;
  // Returns none where ATen computes a part.
  std::unique_ptr<PlannedCall> planned(at::TensorList inputs) const;

 private:
  std::shared_ptr<const ChainPlan> plan(at::TensorList inputs) const;
  bool fits(at::TensorList inputs) const;
  std::vector<at::Tensor> by_aten(at::TensorList inputs) const;

  const ChainProgram program_;
  const torch::jit::Code plain_;
  mutable Recent<ShapeKey, ChainPlan> plans_{8};
};

// Declares the class and the operator to TorchScript, once.
void register_chain();

}  // namespace onnxtorch
