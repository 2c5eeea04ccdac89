#include "case.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <variant>

#include "import/tensor_proto.h"

namespace onnxtorch::fuzz {
namespace {

// Tells whether torch has the same type; tensors of other types stay initializers.
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

bool holds_beyond(const Data& data, float most) {
  const auto* const tensor = std::get_if<at::Tensor>(&data.value());
  return tensor && tensor->is_floating_point() && !tensor->to(at::kFloat).abs().le(most).all().item<bool>();
}

bool holds_beyond(const onnx::TensorProto& tensor, float most) {
  return can_be_fed(tensor) && holds_beyond(data_of(tensor), most);
}

bool holds_beyond(const onnx::NodeProto& node, float most) {
  return std::ranges::any_of(node.attribute(), [most](const auto& attribute) {
    return !(std::abs(attribute.f()) <= most) || (attribute.has_t() && holds_beyond(attribute.t(), most));
  });
}

// Tells whether an attribute has the text, which is written as the number of its field, its length, and the text
// itself.
bool has_text(const onnx::ModelProto& model, std::string_view text) {
  onnx::AttributeProto attribute;
  attribute.set_s(std::string(text));
  return model.SerializeAsString().find(attribute.SerializeAsString()) != std::string::npos;
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

bool holds_beyond(const Case& of, float most) {
  const auto& graph = of.model.graph();
  const auto any = [most](const auto& all) {
    return std::ranges::any_of(all, [most](const auto& one) { return holds_beyond(one, most); });
  };
  return any(graph.node()) || any(graph.initializer()) ||
         std::ranges::any_of(of.feeds, [most](const auto& feed) { return holds_beyond(feed.second, most); });
}

bool draws_numbers(const onnx::ModelProto& model) {
  constexpr std::array kOfAten{"_sample_dirichlet",
                               "_scaled_dot_product_attention_math",
                               "_standard_gamma",
                               "alpha_dropout",
                               "bernoulli",
                               "dropout",
                               "feature_dropout",
                               "feature_alpha_dropout",
                               "multinomial",
                               "native_dropout",
                               "normal",
                               "poisson",
                               "rand",
                               "rand_like",
                               "randint",
                               "randint_like",
                               "randn",
                               "randn_like",
                               "randperm",
                               "rrelu",
                               "scaled_dot_product_attention"};
  return names_one_of(model, {"Random", "Bernoulli", "Multinomial", "Dropout"}) ||
         std::ranges::any_of(kOfAten, [&](std::string_view name) { return has_text(model, name); });
}

// What is masked counts by 0 in some ways to compute attention, of which an infinite value makes a NaN, and not at all
// in others; ATen's fused one, which the plain graph has, takes a row whose scores are all NaN for one that is masked.
// Scores are products: those of large numbers are infinite.
// ATen's Gelu of an infinite number is a NaN in vectors of some lengths, and infinite in others.
// A kernel's NaN times the zeros of padding is a NaN, or is left out with them.
// Where MatMulNBits rounds to int8, as it may, an infinite number makes a NaN, as in onnxruntime.
// The squares of large numbers, of which a variance is made, are infinite in some ways to add them up.
// The text of a number has its last digits, in which sums in another order differ.
bool is_undecided(const Case& of) {
  const auto casts_to_text = [](const onnx::AttributeProto& attribute) {
    return attribute.name() == "to" && attribute.i() == onnx::TensorProto::STRING;
  };
  const auto writes_text = [&](const onnx::NodeProto& node) {
    return std::ranges::any_of(node.attribute(), casts_to_text);
  };
  constexpr float kLargest = std::numeric_limits<float>::max(), kLargestSquared = 1e18F;
  return (names_one_of(of.model, {"Conv", "Gelu", "MatMulNBits"}) && holds_beyond(of, kLargest)) ||
         (names_one_of(of.model, {"Attention", "LayerNormalization", "RMSNormalization", "GroupNorm", "layer_norm",
                                  "group_norm", "rms_norm"}) &&
          holds_beyond(of, kLargestSquared)) ||
         std::ranges::any_of(of.model.graph().node(), writes_text);
}

}  // namespace onnxtorch::fuzz
