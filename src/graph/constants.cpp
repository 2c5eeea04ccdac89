#include "graph/constants.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include "graph/symbols.h"

namespace onnxtorch {

namespace jit = torch::jit;

Constants::Constants(const Program& program) {
  for (size_t i = 0; i < program.graph_inputs.size(); ++i) {
    const GraphInput& input = program.graph_inputs[i];
    if (input.role == GraphInput::Role::Constant)
      values_[program.graph->inputs()[i]] = program.constants[input.index].value;
  }
}

std::optional<c10::IValue> Constants::operator()(const jit::Value* value) const {
  if (const auto found = values_.find(value); found != values_.end()) return found->second;
  return jit::toIValue(value);
}

std::optional<at::Tensor> Constants::tensor(const jit::Value* value) const {
  if (const auto known = (*this)(value)) {
    if (known->isTensor()) return known->toTensor();
    return known->isNone() ? std::optional(at::Tensor()) : std::nullopt;
  }
  const jit::Node* node = value->node();
  if (node->matches(kTransposeMatrix)) {
    if (const auto of = tensor(node->input(0))) return of->t();
  }
  if (node->matches(kPermute)) {
    const auto of = tensor(node->input(0));
    const auto dims = (*this)(node->input(1));
    if (of && dims) return of->permute(dims->toIntVector());
  }
  if (node->matches(kSelect)) {
    const auto of = tensor(node->input(0));
    const auto dim = get<int64_t>(node->input(1)), index = get<int64_t>(node->input(2));
    if (of && dim && index) return of->select(*dim, *index);
  }
  if (node->matches(kSlice)) {
    const auto of = tensor(node->input(0));
    const auto dim = get<int64_t>(node->input(1)), step = get<int64_t>(node->input(4));
    const auto start = (*this)(node->input(2)), end = (*this)(node->input(3));
    if (of && dim && start && end && step)
      return of->slice(*dim, start->toOptional<int64_t>(), end->toOptional<int64_t>(), *step);
  }
  return {};
}

std::optional<double> Constants::number(const jit::Value* value) const {
  const auto known = (*this)(value);
  if (!known) return {};
  if (known->isScalar())
    return known->toScalar().isComplex() ? std::nullopt : std::optional(known->toScalar().toDouble());
  if (!known->isTensor() || !known->toTensor().defined()) return {};
  const at::Tensor& tensor = known->toTensor();
  if (tensor.numel() != 1 || tensor.is_complex() || tensor.is_meta()) return {};
  return tensor.item<double>();
}

bool is_finite(const at::Tensor& tensor) { return at::isfinite(tensor).all().item<bool>(); }

}  // namespace onnxtorch
