#include "translate/signature.h"

#include <set>
#include <string_view>

#include "base/element_type.h"
#include "onnx_torch/error.h"

namespace onnxtorch {
namespace {

ElementType element_of(int number) {
  if (number != 0 && !is_element_type(number))
    throw InvalidModelError("unknown element type " + std::to_string(number));
  return static_cast<ElementType>(number);
}

Dim dim_of(const onnx::TensorShapeProto::Dimension& dim, const FixedSizes& sizes) {
  if (dim.has_dim_value() && dim.dim_value() >= 0) return {dim.dim_value(), ""};
  const auto fixed = sizes.find(dim.dim_param());
  return fixed == sizes.end() ? Dim{-1, dim.dim_param()} : Dim{fixed->second, dim.dim_param()};
}

std::string axis_name(const std::string& input, size_t axis) { return input + "[" + std::to_string(axis) + "]"; }

// Adds the sizes of symbols that follow from those of inputs' axes.
FixedSizes with_symbols(const onnx::ModelProto& model, FixedSizes sizes) {
  for (const auto& input : model.graph().input()) {
    const std::vector<Dim> dims = declared_dims(input.type()).value_or(std::vector<Dim>{});
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      const auto given = sizes.find(axis_name(input.name(), axis));
      if (given != sizes.end() && has_name(dims[axis])) sizes[dims[axis].symbol] = given->second;
    }
  }
  return sizes;
}

// Gives the declared dimensions of an input, with the sizes of axes in the place of what is open. An input that
// declares no shape has as many dimensions as sizes are given.
std::optional<std::vector<Dim>> input_dims(const onnx::ValueInfoProto& input, const FixedSizes& sizes) {
  std::optional<std::vector<Dim>> dims = declared_dims(input.type(), sizes);
  const auto given = [&](size_t axis) { return sizes.find(axis_name(input.name(), axis)); };
  if (!dims && given(0) != sizes.end()) {
    dims.emplace();
    while (given(dims->size()) != sizes.end()) dims->push_back({-1, ""});
  }
  for (size_t axis = 0; dims && axis < dims->size(); ++axis) {
    Dim& dim = (*dims)[axis];
    if (dim.size < 0 && given(axis) != sizes.end()) dim.size = given(axis)->second;
  }
  return dims;
}

// Gives the sizes that names can stand for: those of symbols, and those of inputs' axes. An open one is negative.
std::map<std::string, int64_t> sizes_by_names(const std::vector<InputSpec>& inputs) {
  std::map<std::string, int64_t> sizes;
  for (const InputSpec& input : inputs) {
    const std::vector<Dim> dims = input.dims.value_or(std::vector<Dim>{});
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      sizes[axis_name(input.name, axis)] = dims[axis].size;
      if (!dims[axis].symbol.empty()) sizes[dims[axis].symbol] = dims[axis].size;
    }
  }
  return sizes;
}

std::string symbols_of(const std::vector<InputSpec>& inputs) {
  std::set<std::string> symbols;
  for (const InputSpec& input : inputs) {
    for (const Dim& dim : input.dims.value_or(std::vector<Dim>{})) symbols.insert(dim.symbol);
  }
  symbols.erase("");
  std::string text;
  for (const std::string& symbol : symbols) text += (text.empty() ? "" : ", ") + symbol;
  return text;
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

std::optional<std::vector<Dim>> declared_dims(const onnx::TypeProto& type, const FixedSizes& sizes) {
  const auto shape_of = [](const auto& tensor) { return tensor.has_shape() ? &tensor.shape() : nullptr; };
  const onnx::TensorShapeProto* shape = type.has_sparse_tensor_type() ? shape_of(type.sparse_tensor_type())
                                        : type.has_tensor_type()      ? shape_of(type.tensor_type())
                                                                      : nullptr;
  if (!shape) return {};
  std::vector<Dim> dims;
  for (const auto& dim : shape->dim()) dims.push_back(dim_of(dim, sizes));
  return dims;
}

std::vector<InputSpec> declared_inputs(const onnx::ModelProto& model, const FixedSizes& sizes) {
  const onnx::GraphProto& graph = model.graph();
  const FixedSizes all = with_symbols(model, sizes);
  std::set<std::string> initialized;
  for (const auto& tensor : graph.initializer()) initialized.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) initialized.insert(tensor.values().name());
  std::vector<InputSpec> inputs;
  std::set<std::string_view> names;
  for (const auto& input : graph.input()) {
    if (!names.insert(input.name()).second) throw InvalidModelError("two inputs are called \"" + input.name() + "\"");
    inputs.push_back(
        {input.name(), value_type(input.type()), input_dims(input, all), initialized.contains(input.name())});
    if (!inputs.back().type.known()) throw InvalidModelError("the input \"" + input.name() + "\" has no type");
  }
  return inputs;
}

std::vector<OutputSpec> declared_outputs(const onnx::ModelProto& model, const FixedSizes& sizes) {
  const FixedSizes all = with_symbols(model, sizes);
  std::vector<OutputSpec> outputs;
  for (const auto& output : model.graph().output()) {
    outputs.push_back({output.name(), value_type(output.type()), declared_dims(output.type(), all)});
  }
  return outputs;
}

bool has_name(const Dim& dim) { return !dim.symbol.empty() && dim.symbol != "?"; }

void check_sizes(const FixedSizes& sizes, const std::vector<InputSpec>& inputs) {
  const std::map<std::string, int64_t> there = sizes_by_names(inputs);
  for (const auto& [name, size] : sizes) {
    if (size < 0) throw InputError("the dimension \"" + name + "\" cannot have the size " + std::to_string(size));
    const auto found = there.find(name);
    if (found == there.end()) {
      const std::string symbols = symbols_of(inputs);
      throw InputError("the model's inputs have no dimension \"" + name + "\"" +
                       (symbols.empty() ? ", and no symbolic one at all" : "; there are " + symbols));
    }
    if (found->second != size) {
      throw InputError("the dimension \"" + name + "\" has the size " + std::to_string(found->second) + ", not " +
                       std::to_string(size));
    }
  }
}

}  // namespace onnxtorch
