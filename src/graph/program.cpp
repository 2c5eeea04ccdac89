#include "graph/program.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

namespace onnxtorch {

bool has_open_sizes(const Program& program) {
  const auto is_open = [](const Dim& dim) { return dim.size < 0; };
  return std::ranges::any_of(
      program.inputs, [&](const InputSpec& input) { return input.dims && std::ranges::any_of(*input.dims, is_open); });
}

torch::jit::Value* bind_constant(Program& program, c10::IValue value) {
  torch::jit::Value* const input = program.graph->addInput();
  input->setType(value.type());
  program.graph_inputs.push_back({GraphInput::Role::Constant, program.constants.size()});
  program.constants.push_back({"", std::move(value)});
  return input;
}

c10::TypePtr torchscript_type(const ValueType& type) {
  switch (type.kind) {
    case ValueType::Kind::Tensor:
      return c10::TensorType::get();
    case ValueType::Kind::Sequence:
      return c10::ListType::create(torchscript_type(*type.inner));
    case ValueType::Kind::Optional:
      return c10::OptionalType::create(torchscript_type(*type.inner));
    case ValueType::Kind::Map:
      return c10::TupleType::create({c10::TensorType::get(), c10::TensorType::get()});
  }
  return c10::TensorType::get();
}

void drop_unused(Program& program) {
  const auto is_unused = [&, i = size_t{0}](const GraphInput& input) mutable {
    return program.graph->inputs()[i++]->uses().empty() && input.role != GraphInput::Role::Input;
  };
  if (std::none_of(program.graph_inputs.begin(), program.graph_inputs.end(), is_unused)) return;
  std::vector<GraphInput> used;
  std::vector<Constant> constants;
  for (GraphInput input : program.graph_inputs) {
    if (input.role != GraphInput::Role::Input && program.graph->inputs()[used.size()]->uses().empty()) {
      program.graph->eraseInput(used.size());
      continue;
    }
    if (input.role == GraphInput::Role::Constant) {
      constants.push_back(std::move(program.constants[input.index]));
      input.index = constants.size() - 1;
    }
    used.push_back(input);
  }
  program.graph_inputs = std::move(used);
  program.constants = std::move(constants);
}

}  // namespace onnxtorch
