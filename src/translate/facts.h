// What is known of graph values while translating: whole values where they follow from constants, and shapes (as
// tensors on the meta device) where they follow from fixed input dimensions. No shape function per operator: whatever
// enters the graph is run once, for real on small known values, else on the meta device.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>

namespace onnxtorch {

class Facts {
 public:
  using Run = std::function<void(torch::jit::Stack&)>;

  std::optional<c10::IValue> value(const torch::jit::Value* v) const;
  std::optional<at::Tensor> meta(const torch::jit::Value* v) const;

  void set_value(const torch::jit::Value* v, const c10::IValue& value);
  std::optional<c10::IValue> take_value(const torch::jit::Value* v);  // and forgets it
  void set_meta(const torch::jit::Value* v, const at::Tensor& meta);

  // The value may change after translating: what is read from it on the host stays known, floating tensors made of it
  // do not.
  void set_changing(const torch::jit::Value* v) { changing_.insert(v); }

  // What `run` computes from known inputs: nothing where one is unknown, or a result too large to keep.
  std::optional<torch::jit::Stack> evaluate(std::span<torch::jit::Value* const> inputs, const Run& run) const;

  // Finds the facts of outputs that `run` computes from inputs; of a node just inserted.
  void learn(std::span<torch::jit::Value* const> inputs, std::span<torch::jit::Value* const> outputs,
             bool deterministic, const Run& run);
  void learn(torch::jit::Node* node);

  // The values that were found out, other than constants.
  const std::unordered_map<const torch::jit::Value*, c10::IValue>& values() const { return values_; }

 private:
  std::optional<c10::IValue> meta_or_value(const torch::jit::Value* v) const;

  std::unordered_map<const torch::jit::Value*, c10::IValue> values_;
  std::unordered_map<const torch::jit::Value*, c10::IValue> metas_;
  std::unordered_set<const torch::jit::Value*> changing_;
};

}  // namespace onnxtorch
