#include "case.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string_view>

#include "import/tensor_proto.h"

namespace onnxtorch::fuzz {
namespace {

// What torch has the same type for; other tensors stay initializers.
bool can_be_fed(const onnx::TensorProto& tensor) {
  if (!is_element_type(tensor.data_type())) return false;
  const ElementType type = element_type(tensor);
  return type == ElementType::String || element_type_of(storage_dtype(type)) == type;
}

Data data_of(const onnx::TensorProto& tensor) {
  const ExternalData nowhere;
  Strings strings;
  const auto intern = [&](std::string_view text) {
    strings.values.emplace_back(text);
    return std::ssize(strings.values);
  };
  const at::Tensor read = TensorReader{nowhere, {}, intern}.read(tensor, nullptr).clone();  // in memory of its own
  if (element_type(tensor) != ElementType::String) return read;
  strings.sizes = read.sizes().vec();
  return strings;
}

}  // namespace

std::optional<Case> case_of(const std::string& bytes) {
  Case result;
  if (!result.model.ParseFromString(bytes)) return {};
  auto& graph = *result.model.mutable_graph();
  for (const auto& input : graph.input()) {
    const auto tensor = std::ranges::find(graph.initializer(), input.name(), &onnx::TensorProto::name);
    if (tensor == graph.initializer().end() || !can_be_fed(*tensor)) continue;
    result.feeds[input.name()] = data_of(*tensor);
    graph.mutable_initializer()->erase(tensor);
  }
  return result;
}

bool names_one_of(const onnx::ModelProto& model, std::initializer_list<std::string_view> names) {
  const std::string text = model.SerializeAsString();
  return std::ranges::any_of(names, [&](std::string_view name) { return text.find(name) != std::string::npos; });
}

bool draws_numbers(const onnx::ModelProto& model) {
  return names_one_of(model, {"Random", "Bernoulli", "Multinomial", "Dropout"});
}

}  // namespace onnxtorch::fuzz
