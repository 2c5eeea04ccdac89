#include "case.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <variant>

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

bool is_non_finite(const Data& data) {
  const auto* const tensor = std::get_if<at::Tensor>(&data.value());
  return tensor && tensor->is_floating_point() && !at::isfinite(tensor->to(at::kFloat)).all().item<bool>();
}

bool holds_non_finite(const onnx::TensorProto& tensor) { return can_be_fed(tensor) && is_non_finite(data_of(tensor)); }

bool holds_non_finite(const onnx::NodeProto& node) {
  return std::ranges::any_of(node.attribute(), [](const auto& attribute) {
    return !std::isfinite(attribute.f()) || (attribute.has_t() && holds_non_finite(attribute.t()));
  });
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

bool holds_non_finite(const Case& of) {
  const auto& graph = of.model.graph();
  const auto any = [](const auto& all) {
    return std::ranges::any_of(all, [](const auto& one) { return holds_non_finite(one); });
  };
  return any(graph.node()) || any(graph.initializer()) ||
         std::ranges::any_of(of.feeds, [](const auto& feed) { return is_non_finite(feed.second); });
}

bool draws_numbers(const onnx::ModelProto& model) {
  return names_one_of(model, {"Random", "Bernoulli", "Multinomial", "Dropout"});
}

}  // namespace onnxtorch::fuzz
