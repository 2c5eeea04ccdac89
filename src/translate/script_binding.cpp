#include <onnx/onnx-ml.pb.h>

#include <stdexcept>

#include "translate/binding.h"
#include "translate/scripts.h"

namespace onnxtorch {
namespace {

using c10::TypeKind;

std::optional<size_t> input_named(const NodeView& n, const std::string& name) {
  const auto& inputs = n.schema()->inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].name == name) return i;
  }
  return {};
}

}  // namespace

c10::TypePtr without_optional(const c10::TypePtr& type) {
  return type->kind() == TypeKind::OptionalType ? type->expectRef<c10::OptionalType>().getElementType() : type;
}

Arg argument_of_input(const NodeView& n, size_t i, const c10::TypePtr& parameter) {
  const c10::TypePtr type = without_optional(parameter);
  switch (type->kind()) {
    case TypeKind::IntType:
      return n.integer(i);
    case TypeKind::FloatType:
      return n.number(i);
    case TypeKind::BoolType:
      return n.boolean(i);
    case TypeKind::ListType:
      if (type->isSubtypeOf(*c10::ListType::ofInts())) return n.ints(i);
      if (n.schema()->inputs[i].option == FormalOption::Variadic) return n.tensors(i);
      return n.input(i);
    default:
      return n.tensor(i);
  }
}

Arg argument_of_attribute(const NodeView& n, const std::string& name, const c10::TypePtr& parameter) {
  const TypeKind kind = without_optional(parameter)->kind();
  switch (n.attribute(name)->type()) {
    case onnx::AttributeProto::INT:
      if (kind == TypeKind::BoolType) return n.attr_int(name) != 0;
      if (kind == TypeKind::FloatType) return static_cast<double>(n.attr_int(name));
      return n.attr_int(name);
    case onnx::AttributeProto::FLOAT:
      return n.attr_float(name);
    case onnx::AttributeProto::STRING:
      return n.attr_string(name);
    case onnx::AttributeProto::INTS:
      return n.attr_ints(name);
    case onnx::AttributeProto::FLOATS:
      return n.attr_floats(name);
    case onnx::AttributeProto::STRINGS:
      return n.attr_strings(name);
    case onnx::AttributeProto::TENSOR:
      return n.attr_tensor(name);
    default:
      throw std::logic_error("a script cannot take the attribute " + name);
  }
}

namespace {

// Gives the argument for a script's parameter, by its name.
Arg argument_for(Translator& t, const NodeView& n, const std::string& name, const c10::TypePtr& type) {
  if (const auto i = input_named(n, name)) return argument_of_input(n, *i, type);
  if (n.has_attribute(name)) return argument_of_attribute(n, name, type);
  if (n.schema()->find_attribute(name)) return none;
  if (name == "output_dtype") return n.output_element();
  if (name == "num_outputs") return static_cast<int64_t>(n.output_count());
  if (name == "device") return t.device();
  if (type->kind() == TypeKind::OptionalType) return none;  // an input or attribute of other versions
  throw std::logic_error("its script's parameter " + name + " is neither an input nor an attribute");
}

}  // namespace

TranslateFunction script(std::string function, std::vector<Arg> fixed) {
  return [function = std::move(function), fixed = std::move(fixed)](Translator& t, const NodeView& n) {
    std::vector<Arg> args = fixed;
    for (const c10::Argument& parameter : find_script(function).schema.arguments()) {
      const auto is_fixed = [&](const Arg& arg) { return arg.name == parameter.name(); };
      if (std::ranges::any_of(fixed, is_fixed)) continue;
      args.push_back(kw(parameter.name(), argument_for(t, n, parameter.name(), parameter.type())));
    }
    Values results = t.call_all(function, std::move(args));
    const auto& outputs = n.schema()->outputs;
    if (outputs.empty() || outputs[0].option != FormalOption::Variadic) return results;
    Values items;
    for (size_t i = 0; i < n.output_count(); ++i)
      items.push_back(t.call("aten::__getitem__", {results[0], static_cast<int64_t>(i)}));
    return items;
  };
}

}  // namespace onnxtorch
