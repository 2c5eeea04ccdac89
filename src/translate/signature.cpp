#include "translate/signature.h"

#include <set>

#include "base/element_type.h"
#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

ElementType element_of(int number) {
  if (number != 0 && !is_element_type(number))
    throw InvalidModelError("unknown element type " + std::to_string(number));
  return static_cast<ElementType>(number);
}

Dim dim_of(const onnx::TensorShapeProto::Dimension& dim, const std::map<std::string, int64_t>& sizes) {
  if (dim.has_dim_value() && dim.dim_value() >= 0) return {dim.dim_value(), ""};
  const auto fixed = sizes.find(dim.dim_param());
  return fixed == sizes.end() ? Dim{-1, dim.dim_param()} : Dim{fixed->second, dim.dim_param()};
}

}  // namespace

ValueType value_type(const onnx::TypeProto& type) {
  switch (type.value_case()) {
    case onnx::TypeProto::kTensorType:
      return ValueType::tensor(element_of(type.tensor_type().elem_type()));
    case onnx::TypeProto::kSparseTensorType:
      return ValueType::tensor(element_of(type.sparse_tensor_type().elem_type()));
    case onnx::TypeProto::kSequenceType:
      return ValueType::sequence(value_type(type.sequence_type().elem_type()));
    case onnx::TypeProto::kOptionalType:
      return ValueType::optional(value_type(type.optional_type().elem_type()));
    case onnx::TypeProto::kMapType:
      return ValueType::map(element_of(type.map_type().key_type()), value_type(type.map_type().value_type()).element);
    default:
      return {};
  }
}

std::optional<std::vector<Dim>> declared_dims(const onnx::TypeProto& type,
                                              const std::map<std::string, int64_t>& sizes) {
  const auto shape_of = [](const auto& tensor) { return tensor.has_shape() ? &tensor.shape() : nullptr; };
  const onnx::TensorShapeProto* shape = type.has_sparse_tensor_type() ? shape_of(type.sparse_tensor_type())
                                        : type.has_tensor_type()      ? shape_of(type.tensor_type())
                                                                      : nullptr;
  if (!shape) return {};
  std::vector<Dim> dims;
  for (const auto& dim : shape->dim()) dims.push_back(dim_of(dim, sizes));
  return dims;
}

std::vector<InputSpec> declared_inputs(const onnx::ModelProto& model, const std::map<std::string, int64_t>& sizes) {
  const onnx::GraphProto& graph = model.graph();
  std::set<std::string> initialized;
  for (const auto& tensor : graph.initializer()) initialized.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) initialized.insert(tensor.values().name());
  std::vector<InputSpec> inputs;
  for (const auto& input : graph.input()) {
    inputs.push_back({input.name(), value_type(input.type()), declared_dims(input.type(), sizes),
                      initialized.contains(input.name())});
    if (!inputs.back().type.known()) throw InvalidModelError("the input \"" + input.name() + "\" has no type");
  }
  return inputs;
}

std::vector<OutputSpec> declared_outputs(const onnx::ModelProto& model, const std::map<std::string, int64_t>& sizes) {
  std::vector<OutputSpec> outputs;
  for (const auto& output : model.graph().output()) {
    outputs.push_back({output.name(), value_type(output.type()), declared_dims(output.type(), sizes)});
  }
  return outputs;
}

bool has_name(const Dim& dim) { return !dim.symbol.empty() && dim.symbol != "?"; }

void check_sizes(const std::map<std::string, int64_t>& sizes, const std::vector<InputSpec>& inputs) {
  std::set<std::string> symbols;
  for (const InputSpec& input : inputs) {
    for (const Dim& dim : input.dims.value_or(std::vector<Dim>{})) {
      if (!dim.symbol.empty()) symbols.insert(dim.symbol);
    }
  }
  for (const auto& [name, size] : sizes) {
    if (size < 0) throw InputError("the dimension \"" + name + "\" cannot have the size " + std::to_string(size));
    if (symbols.contains(name)) continue;
    std::string there;
    for (const std::string& symbol : symbols) there += (there.empty() ? "" : ", ") + symbol;
    throw InputError("the model's inputs have no dimension \"" + name + "\"" +
                     (there.empty() ? ", and no symbolic one at all" : "; there are " + there));
  }
}

}  // namespace onnxtorch
