#include "ops/contrib/fused.h"

#include <onnx/onnx-ml.pb.h>

#include <map>
#include <utility>

#include "import/schema.h"
#include "ops/arithmetic.h"
#include "translate/registry.h"

namespace onnxtorch {
namespace {

Values standard_node(Translator& t, const NodeView& n, const onnx::NodeProto& node, Values inputs, int64_t opset) {
  const OperatorSchema* const schema = find_schema("", node.op_type(), opset);
  const TranslateFunction* const translate =
      schema ? registry().find("", schema->name, schema->since_version) : nullptr;
  if (!translate) n.unsupported("there is no " + node.op_type());
  return (*translate)(t, NodeView(t, node, schema, n.label(), std::move(inputs)));
}

// --- Activations ---

// Gives for each of the standard's activations its parameters' names there, in the order of activation_params.
const std::map<std::string_view, std::vector<std::string>>& activation_parameters() {
  static const std::map<std::string_view, std::vector<std::string>> parameters{
      {"Celu", {"alpha"}},
      {"Clip", {"min", "max"}},
      {"Elu", {"alpha"}},
      {"Gelu", {}},
      {"HardSigmoid", {"alpha", "beta"}},
      {"HardSwish", {}},
      {"Hardmax", {"axis"}},
      {"LeakyRelu", {"alpha"}},
      {"LogSoftmax", {"axis"}},
      {"Mish", {}},
      {"ParametricSoftplus", {"alpha", "beta"}},
      {"Relu", {}},
      {"ScaledTanh", {"alpha", "beta"}},
      {"Selu", {"alpha", "gamma"}},
      {"Sigmoid", {}},
      {"Softmax", {"axis"}},
      {"Softplus", {}},
      {"Softsign", {}},
      {"Swish", {"alpha"}},
      {"Tanh", {}},
      {"ThresholdedRelu", {"alpha"}},
  };
  return parameters;
}

constexpr int64_t kClipWithAttributes = 6;

onnx::AttributeProto float_attribute(const std::string& name, double value) {
  onnx::AttributeProto attribute;
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::FLOAT);
  attribute.set_f(static_cast<float>(value));
  return attribute;
}

// Makes the activation's node with its parameters, which are elements of activation_params or attributes of their own.
onnx::NodeProto activation_node(const NodeView& n, const std::string& activation) {
  const auto known = activation_parameters().find(activation);
  if (known == activation_parameters().end()) n.fail("there is no activation \"" + activation + "\"");
  const std::vector<std::string>& names = known->second;
  const std::vector<double> params =
      n.has_attribute("activation_params") ? n.attr_floats("activation_params") : std::vector<double>();
  if (!params.empty() && !names.empty() && params.size() != names.size())
    n.fail(activation + " takes " + std::to_string(names.size()) + " activation_params");
  onnx::NodeProto node = n.proto();
  node.set_op_type(activation);
  node.clear_attribute();
  for (size_t i = 0; i < names.size(); ++i) {
    if (i < params.size()) {
      *node.add_attribute() = float_attribute(names[i], params[i]);
    } else if (const auto* const own = n.attribute("activation_" + names[i])) {
      *node.add_attribute() = *own;
      node.mutable_attribute()->rbegin()->set_name(names[i]);
    }
  }
  return node;
}

}  // namespace

NodeView with_inputs(Translator& t, const NodeView& n, Values inputs) {
  return {t, n.proto(), n.schema(), n.label(), std::move(inputs)};
}

Values standard(Translator& t, const NodeView& n, const std::string& op, Values inputs, int64_t opset) {
  onnx::NodeProto node = n.proto();
  node.set_op_type(op);
  node.clear_attribute();
  for (const AttributeSchema& attribute : n.schema()->attributes) {
    if (const auto* const value = n.attribute(attribute.name)) *node.add_attribute() = *value;
  }
  return standard_node(t, n, node, std::move(inputs), opset);
}

Values standard(Translator& t, const NodeView& n, const std::string& op, Values inputs) {
  return standard(t, n, op, std::move(inputs), newest_opset(""));
}

Value activated(Translator& t, const NodeView& n, const Value& y) {
  const std::string activation = n.has_attribute("activation") ? n.attr_string("activation") : std::string();
  const bool unchanged = activation == "Relu" && is_unsigned(y.type.element);
  if (activation.empty() || unchanged) return y;
  const int64_t opset = activation == "Clip" ? kClipWithAttributes : newest_opset("");
  return standard_node(t, n, activation_node(n, activation), {y}, opset).front().as(y.type);
}

Values fused_conv(Translator& t, const NodeView& n) {
  Value y = standard(t, n, "Conv", {n.input(0), n.input(1), n.input(2)})[0].as(n.element(0));
  if (n.has(3)) y = t.call("aten::add", {y, n.tensor(3)}).as(n.element(0));
  return {activated(t, n, y)};
}

ImageLayout channels_last() {
  const auto permuted = [](const char* order) {
    return [order](Translator& t, const Value& x) {
      return t.call("aten::permute", {x, t.call(order, {t.call("aten::dim", {x})})});
    };
  };
  return {permuted("channels_first_order"), permuted("channels_last_order")};
}

TranslateFunction in_layout(ImageLayout layout, TranslateFunction translate, std::vector<size_t> images) {
  return [layout = std::move(layout), translate = std::move(translate), images = std::move(images)](Translator& t,
                                                                                                    const NodeView& n) {
    Values inputs = n.inputs();
    for (const size_t i : images) {
      if (n.has(i)) inputs[i] = layout.plain(t, n.tensor(i)).as(n.element(i));
    }
    Values outputs = translate(t, with_inputs(t, n, std::move(inputs)));
    outputs[0] = layout.laid_out(t, outputs[0]).as(n.output_type(0));
    return outputs;
  };
}

}  // namespace onnxtorch
