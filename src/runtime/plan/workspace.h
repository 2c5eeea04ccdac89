// The memory and the tensors of a plan's run. They are used again by the next one; runs at the same time have one each.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <memory>
#include <span>
#include <vector>

#include "base/planned_call.h"
#include "base/string_pool.h"
#include "runtime/plan/plan.h"
#include "runtime/targets.h"

namespace onnxtorch {

class Workspace {
 public:
  explicit Workspace(std::shared_ptr<const Plan> plan);

  // Does what Executable::run does. The workspace is of no use any more after an exception.
  std::vector<c10::IValue> run(std::span<const c10::IValue> inputs, const c10::intrusive_ptr<StringPool>& strings,
                               const Targets& targets);

 private:
  void bind(size_t buffer, void* data);
  void take_arena();
  void hold(size_t buffer, at::Tensor tensor);
  void run(const Step& step);
  void push_arguments(const Step& step);
  void take_results(const Step& step);
  void take(size_t slot, c10::IValue value);
  void take_tensor(const TensorForm& form, at::Tensor given);
  c10::IValue result(size_t slot);

  const std::shared_ptr<const Plan> plan_;
  at::Tensor arena_;                    // is kept between runs where it is small
  uint8_t* arena_data_ = nullptr;       // its place in the run before
  std::vector<c10::Storage> storages_;  // those of buffers in which a tensor lies
  std::vector<at::Tensor> held_;        // the tensors whose memory buffers are
  std::vector<TensorPlace> places_;     // the places of buffers
  std::vector<float> bounds_;           // the bounds of buffers
  std::vector<c10::IValue> values_;     // the values of slots
  std::vector<size_t> inputs_, results_;
  torch::jit::Stack stack_;
};

}  // namespace onnxtorch
