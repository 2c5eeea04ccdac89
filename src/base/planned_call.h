// Operators of which a run of known sizes knows everything but where the elements lie: what their sizes decide is
// decided once, by a planner, and the call that it makes takes memory alone.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/symbol.h>

#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace onnxtorch {

// The error of a step that gives, or is to give, something of another form than in the run that was recorded.
struct OtherForm : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The place of a tensor's first element, and the tensor's bound as far as that is known.
struct TensorPlace {
  char* data;
  float* bound;

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

class PlannedCall {
 public:
  virtual ~PlannedCall() = default;
  // Computes from the places of the tensors among the arguments, those of lists one by one, then of the results, and
  // then of as much memory as `work_bytes` asks for. Any number of threads may call.
  virtual void run(std::span<const TensorPlace> places) const = 0;
  virtual size_t work_bytes() const { return 0; }
  // A result that may lie where an argument lies that nobody needs any more: both by their indices among the places.
  struct Over {
    size_t result, argument;
  };
  virtual std::vector<Over> over() const { return {}; }
};

// Makes a call of a function of the places.
template <typename F>
std::unique_ptr<PlannedCall> planned(F function, std::vector<PlannedCall::Over> over = {}) {
  class Function : public PlannedCall {
   public:
    Function(F f, std::vector<Over> pairs) : function_(std::move(f)), over_(std::move(pairs)) {}
    void run(std::span<const TensorPlace> places) const override { function_(places); }
    std::vector<Over> over() const override { return over_; }

   private:
    const F function_;
    const std::vector<Over> over_;
  };
  return std::make_unique<Function>(std::move(function), std::move(over));
}

// The operands of an operator: the arguments of one run, and the tensors that it gave. Their sizes, strides, types and
// numbers are every run's; the elements of tensors are not.
struct PlannedOperands {
  std::span<const c10::IValue> arguments;
  std::span<const at::Tensor> results;

  // Gives the tensor of an argument; undefined where it is absent.
  at::Tensor tensor(size_t argument) const;
};

// A function that makes the call; none where it takes no such operands.
using Planner = std::unique_ptr<PlannedCall> (*)(const PlannedOperands& operands);

// Adds a planner of an operator, `aten::…` or `onnx_torch::…`; plan_call asks one after another.
__attribute__((visibility("default"))) void register_planner(const char* name, Planner planner);
__attribute__((visibility("default"))) std::unique_ptr<PlannedCall> plan_call(c10::Symbol name,
                                                                              const PlannedOperands& operands);

}  // namespace onnxtorch
