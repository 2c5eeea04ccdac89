#include "translate/node_view.h"

#include <onnx/onnx-ml.pb.h>

#include "translate/signature.h"
#include "translate/translator.h"

namespace onnxtorch {

const FormalParameter* formal_at(std::span<const FormalParameter> formals, size_t i) {
  if (i < formals.size()) return &formals[i];
  return !formals.empty() && formals.back().option == FormalOption::Variadic ? &formals.back() : nullptr;
}

NodeView::NodeView(Translator& translator, const onnx::NodeProto& proto, const OperatorSchema* schema, NodeLabel label,
                   Values inputs)
    : translator_(translator), proto_(proto), schema_(schema), label_(std::move(label)), inputs_(std::move(inputs)) {}

Value NodeView::tensor(size_t i) const { return translator_.tensor(input(i)); }
Value NodeView::ints(size_t i) const { return translator_.ints(input(i)); }
Value NodeView::integer(size_t i) const { return translator_.integer(input(i)); }
Value NodeView::number(size_t i) const { return translator_.number(input(i)); }
Value NodeView::boolean(size_t i) const { return translator_.boolean(input(i)); }

Values NodeView::tensors(size_t from) const {
  Values result;
  for (size_t i = from; i < inputs_.size(); ++i) result.push_back(tensor(i));
  return result;
}

ElementType NodeView::element(size_t i) const { return input(i).type.element; }

bool NodeView::on_host(size_t from) const {
  bool any = false;
  for (size_t i = from; i < inputs_.size(); ++i) {
    const Value& v = inputs_[i];
    if (v.absent()) continue;
    if (v.type.element != ElementType::Int64 && v.type.element != ElementType::Int32) return false;
    if (translator_.on_host(v)) {
      any = true;
    } else if (!translator_.known_ints(v) || translator_.known_shape(v)->size() > 1) {
      return false;
    }
  }
  return any;
}

size_t NodeView::output_count() const { return static_cast<size_t>(proto_.output_size()); }

bool NodeView::wants(size_t i) const { return i < output_count() && !proto_.output(static_cast<int>(i)).empty(); }

ValueType NodeView::output_type(size_t i) const {
  const FormalParameter* output = schema_ ? formal_at(schema_->outputs, i) : nullptr;
  if (!output) return {};
  for (size_t k = 0; k < inputs_.size(); ++k) {
    const FormalParameter* input = formal_at(schema_->inputs, k);
    if (input && input->type == output->type && inputs_[k].type.known()) return inputs_[k].type;
  }
  for (const TypeConstraint& constraint : schema_->constraints) {
    if (constraint.parameter == output->type) {
      return constraint.allowed.size() == 1 ? ValueType::parse(constraint.allowed[0]) : ValueType{};
    }
  }
  return ValueType::parse(output->type);
}

const onnx::AttributeProto* NodeView::attribute(std::string_view name) const {
  for (const onnx::AttributeProto& attribute : proto_.attribute()) {
    if (attribute.name() == name) return &attribute;
  }
  const AttributeSchema* schema = schema_ ? schema_->find_attribute(name) : nullptr;
  if (!schema || schema->default_value.empty()) return nullptr;
  for (const auto& known : defaults_) {
    if (known->name() == name) return known.get();
  }
  auto parsed = std::make_shared<onnx::AttributeProto>();
  parsed->ParseFromArray(schema->default_value.data(), static_cast<int>(schema->default_value.size()));
  parsed->set_name(std::string(name));
  return defaults_.emplace_back(std::move(parsed)).get();
}

const onnx::AttributeProto& NodeView::required(std::string_view name) const {
  const onnx::AttributeProto* found = attribute(name);
  if (!found) fail("the attribute \"" + std::string(name) + "\" is missing");
  return *found;
}

int64_t NodeView::attr_int(std::string_view name) const { return required(name).i(); }
bool NodeView::attr_flag(std::string_view name) const { return has_attribute(name) && attr_int(name) != 0; }
double NodeView::attr_float(std::string_view name) const { return required(name).f(); }
std::string NodeView::attr_string(std::string_view name) const { return required(name).s(); }
std::vector<int64_t> NodeView::attr_ints(std::string_view name) const {
  const auto& field = required(name).ints();
  return {field.begin(), field.end()};
}
std::vector<double> NodeView::attr_floats(std::string_view name) const {
  const auto& field = required(name).floats();
  return {field.begin(), field.end()};
}
std::vector<std::string> NodeView::attr_strings(std::string_view name) const {
  const auto& field = required(name).strings();
  return {field.begin(), field.end()};
}
ElementType NodeView::attr_element(std::string_view name) const {
  const int64_t number = attr_int(name);
  if (!is_element_type(number)) fail("unknown element type " + std::to_string(number));
  return static_cast<ElementType>(number);
}
ValueType NodeView::attr_type(std::string_view name) const { return value_type(required(name).tp()); }
Value NodeView::attr_tensor(std::string_view name) const { return translator_.constant(required(name).t()); }
const onnx::GraphProto& NodeView::attr_graph(std::string_view name) const { return required(name).g(); }

void NodeView::fail(const std::string& what) const { throw InvalidModelError(what, label_); }
void NodeView::unsupported(const std::string& what) const { throw UnsupportedError(what, label_); }

}  // namespace onnxtorch
