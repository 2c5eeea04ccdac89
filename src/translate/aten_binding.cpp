// Calls of operators by the name torch has for them: those of ATen nodes, and those of a user's own domain.
#include <onnx/onnx-ml.pb.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/standard/most_padding.h"
#include "translate/aten_operators.h"
#include "translate/binding.h"

namespace onnxtorch {
namespace {

using c10::Argument;
using c10::FunctionSchema;
using c10::TypeKind;

bool is_tensor_type(const c10::TypePtr& type) { return without_optional(type)->kind() == TypeKind::TensorType; }

bool is_tensor_list_type(const c10::TypePtr& type) {
  const c10::TypePtr list = without_optional(type);
  return list->kind() == TypeKind::ListType && is_tensor_type(list->expectRef<c10::ListType>().getElementType());
}

bool takes_input(const c10::TypePtr& type) {
  const c10::TypePtr given = without_optional(type);
  switch (given->kind()) {
    case TypeKind::TensorType:
    case TypeKind::NumberType:
    case TypeKind::IntType:
    case TypeKind::FloatType:
    case TypeKind::BoolType:
      return true;
    default:
      return is_tensor_list_type(given) || given->isSubtypeOf(*c10::ListType::ofInts());
  }
}

bool takes_attribute(const c10::TypePtr& type, int attribute_type) {
  const c10::TypePtr given = without_optional(type);
  const auto is = [&](std::initializer_list<TypeKind> kinds) { return std::ranges::count(kinds, given->kind()) > 0; };
  const bool ints = given->isSubtypeOf(*c10::ListType::ofInts());
  switch (attribute_type) {
    case onnx::AttributeProto::INT:
      return ints || is({TypeKind::IntType, TypeKind::BoolType, TypeKind::FloatType, TypeKind::NumberType});
    case onnx::AttributeProto::FLOAT:
      return is({TypeKind::FloatType, TypeKind::NumberType});
    case onnx::AttributeProto::STRING:
      return is({TypeKind::StringType});
    case onnx::AttributeProto::INTS:
      return ints;
    case onnx::AttributeProto::FLOATS:
      return given->isSubtypeOf(*c10::ListType::ofFloats());
    case onnx::AttributeProto::TENSOR:
      return is({TypeKind::TensorType, TypeKind::NumberType});
    default:
      return false;
  }
}

// The source of an argument of an ATen operator: an attribute, or inputs.
struct Source {
  const Argument* argument;
  bool from_attribute;
  size_t first_input = 0, inputs = 0;
};

// Finds the sources of all arguments but those left at their defaults; gives nothing where node and operator do not
// fit. The inputs go in order to the arguments that no attribute names: to the tensors among them, or to all.
std::optional<std::vector<Source>> match(const NodeView& n, const FunctionSchema& schema, bool tensors_only) {
  const auto is_open = [&](const Argument& argument) {
    const bool tensor = is_tensor_type(argument.type()) || is_tensor_list_type(argument.type());
    return !n.has_attribute(argument.name()) && takes_input(argument.type()) && (tensor || !tensors_only);
  };
  const auto& arguments = schema.arguments();
  std::vector<Source> sources;
  size_t next = 0, named = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& argument = arguments[i];
    const c10::TypePtr& type = argument.type();
    if (const auto* attribute = n.attribute(argument.name())) {
      if (!takes_attribute(type, attribute->type())) return {};
      sources.push_back({&argument, true});
      ++named;
    } else if (is_open(argument) && next < n.input_count()) {
      size_t count = 1;
      if (is_tensor_list_type(type) && n.input(next).type.kind != ValueType::Kind::Sequence) {
        const auto later =
            static_cast<size_t>(std::count_if(arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end(),
                                              [&](const Argument& a) { return is_open(a) && !a.default_value(); }));
        if (n.input_count() - next < later) return {};
        count = n.input_count() - next - later;
      }
      // An absent input leaves its argument at the default.
      const bool given = count != 1 || n.has(next) || is_tensor_list_type(type);
      if (!given && !argument.default_value() && type->kind() != TypeKind::OptionalType) return {};
      if (given) sources.push_back({&argument, false, next, count});
      next += count;
    } else if (!argument.default_value() && type->kind() != TypeKind::OptionalType &&
               type->kind() != TypeKind::DeviceObjType) {
      return {};
    }
  }
  const auto others = std::ranges::count_if(
      n.proto().attribute(), [&](const auto& a) { return !n.schema() || !n.schema()->find_attribute(a.name()); });
  if (next != n.input_count() || named != static_cast<size_t>(others)) return {};
  return sources;
}

Arg argument_from(Translator& t, const NodeView& n, const Source& source) {
  const c10::TypePtr& type = source.argument->type();
  if (source.from_attribute) {
    const bool as_number =
        !is_tensor_type(type) && n.attribute(source.argument->name())->type() == onnx::AttributeProto::TENSOR;
    const Arg arg = argument_of_attribute(n, source.argument->name(), type);
    return as_number ? Arg(t.call("aten::item", {std::get<Value>(arg.data)})) : arg;
  }
  if (!is_tensor_list_type(type)) return argument_of_input(n, source.first_input, type);
  if (source.inputs == 1 && n.input(source.first_input).type.kind == ValueType::Kind::Sequence) {
    return n.input(source.first_input);
  }
  Values tensors;
  for (size_t i = 0; i < source.inputs; ++i) tensors.push_back(n.tensor(source.first_input + i));
  return t.list(tensors);
}

std::vector<Arg> arguments_of(Translator& t, const NodeView& n, const FunctionSchema& schema,
                              const std::vector<Source>& sources) {
  std::vector<Arg> args;
  for (const Argument& argument : schema.arguments()) {
    const auto source = std::ranges::find(sources, &argument, &Source::argument);
    if (source != sources.end()) {
      args.push_back(kw(argument.name(), argument_from(t, n, *source)));
    } else if (without_optional(argument.type())->kind() == TypeKind::DeviceObjType) {
      args.push_back(kw(argument.name(), t.device()));
    } else if (!argument.default_value()) {
      args.push_back(kw(argument.name(), none));
    }
  }
  return args;
}

// Tells whether an overload is for dimensions that have names, which torch 2.11 still has. They are str to TorchScript,
// as an attribute may be.
bool is_of_named_dimensions(const FunctionSchema& schema) {
  const std::string& overload = schema.overload_name();
  return overload.find("imname") != std::string::npos || overload.starts_with("names");
}

// Tells whether an operator takes or gives tensors. Operators of numbers alone are TorchScript's own, and divide by
// zero without a look.
bool is_of_tensors(const FunctionSchema& schema) {
  const auto has_tensor = [](const Argument& a) { return is_tensor_type(a.type()) || is_tensor_list_type(a.type()); };
  return std::ranges::any_of(schema.arguments(), has_tensor) || std::ranges::any_of(schema.returns(), has_tensor);
}

// Finds the overloads that the node may mean: those that change nothing in place, of the name wanted where there is
// one.
std::vector<const FunctionSchema*> overloads(const NodeView& n, const std::string& name, const std::string& wanted) {
  std::vector<const FunctionSchema*> found;
  std::string others;
  for (const auto& op : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(name))) {
    const FunctionSchema& schema = op->schema();
    if (schema.is_mutable() || is_of_named_dimensions(schema)) continue;
    if (wanted.empty() || schema.overload_name() == wanted) found.push_back(&schema);
    others += "\n  " + c10::toString(schema);
  }
  if (!found.empty()) return found;
  if (others.empty()) n.unsupported("torch has no operator " + name + " that leaves its arguments as they are");
  n.fail(name + " has no overload \"" + wanted + "\"; it has" + others);
}

Values outputs_of(Translator& t, const NodeView& n, Values results) {
  const bool is_list = results.size() == 1 && is_tensor_list_type(results[0].graph->type());
  if (is_list && n.output_count() > 1) {
    const Value list = results[0];
    results.clear();
    for (size_t i = 0; i < n.output_count(); ++i) {
      results.push_back(t.call("aten::__getitem__", {list, static_cast<int64_t>(i)}));
    }
  } else if (is_list) {
    return {results[0].as(ValueType::sequence(ValueType::tensor(n.element(0))))};
  }
  for (Value& result : results) result = as_output(t, result);
  return results;
}

// The numbers that may be given to arguments in which a number stands for something. Operators take others without a
// look: other layouts are those of sparse tensors and other types those of quantized ones, whose parts are trusted, or
// are none at all; a fifth memory format is asked for without end.
const std::map<std::string, std::set<int64_t>> kForms{{"layout", {0}},
                                                      {"dtype", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 15}},
                                                      {"memory_format", {0, 1, 2, 3}},
                                                      {"interpolation_mode", {0, 1, 2}},
                                                      {"padding_mode", {0, 1, 2}}};

// Gives the integers of an argument, where they are known while translating.
std::optional<std::vector<int64_t>> known_integers(const Translator& t, const NodeView& n, const Source& source) {
  if (!source.from_attribute) return t.known_ints(n.input(source.first_input));
  const onnx::AttributeProto& attribute = *n.attribute(source.argument->name());
  if (attribute.type() == onnx::AttributeProto::INT) return {{attribute.i()}};
  return std::vector<int64_t>(attribute.ints().begin(), attribute.ints().end());
}

void check_forms(const Translator& t, const NodeView& n, const std::vector<Source>& sources) {
  for (const Source& source : sources) {
    const auto form = kForms.find(source.argument->name());
    if (form == kForms.end()) continue;
    const auto given = known_integers(t, n, source);
    if (given && given->size() == 1 && form->second.contains(given->front())) continue;
    std::string allowed;
    for (const int64_t number : form->second) allowed += (allowed.empty() ? "" : ", ") + std::to_string(number);
    n.unsupported("the argument " + form->first + " must be a constant, one of " + allowed +
                  "; the option allow_aten=\"all\" allows others, if you trust the model");
  }
}

// The largest numbers that may be given to arguments of windows, which ATen adds up without a look at what an integer
// holds.
const std::map<std::string, int64_t> kLargest{{"padding", kMostPadding},
                                              {"kernel_size", std::numeric_limits<int32_t>::max()},
                                              {"stride", std::numeric_limits<int32_t>::max()},
                                              {"dilation", std::numeric_limits<int32_t>::max()}};

void check_windows(const Translator& t, const NodeView& n, const std::vector<Source>& sources) {
  for (const Source& source : sources) {
    const auto largest = kLargest.find(source.argument->name());
    const auto given = largest == kLargest.end() ? std::nullopt : known_integers(t, n, source);
    const auto is_too_large = [&](int64_t number) { return number > largest->second || number < -largest->second; };
    if (given && std::ranges::any_of(*given, is_too_large)) {
      n.unsupported("the argument " + largest->first + " may be " + std::to_string(largest->second) + " at most");
    }
  }
}

// Leaves only the overloads that check their arguments, and refuses the node where there are none.
void check_operator(const NodeView& n, const std::string& name, const std::string& wanted,
                    std::vector<const FunctionSchema*>& candidates) {
  std::erase_if(candidates, [&](const FunctionSchema* schema) {
    return !is_of_tensors(*schema) || !is_checked_operator(name, schema->overload_name());
  });
  if (!candidates.empty()) return;
  n.unsupported("the operator " + name + (wanted.empty() ? "" : "." + wanted) +
                " is none of those that check their arguments, which alone ATen nodes may call; the option "
                "allow_aten=\"all\" allows it, if you trust the model");
}

// Calls an operator. One that is not trusted must check its arguments.
Values call_operator(Translator& t, const NodeView& n, const std::string& name, const std::string& overload,
                     bool trusted) {
  auto candidates = overloads(n, name, overload);
  if (!trusted) check_operator(n, name, overload, candidates);
  for (const bool tensors_only : {true, false}) {
    for (const FunctionSchema* schema : candidates) {
      if (const auto sources = match(n, *schema, tensors_only)) {
        if (!trusted) {
          check_forms(t, n, *sources);
          check_windows(t, n, *sources);
        }
        return outputs_of(t, n, t.call_all(name, arguments_of(t, n, *schema, *sources)));
      }
    }
  }
  std::string tried;
  for (const FunctionSchema* schema : candidates) tried += "\n  " + c10::toString(*schema);
  n.fail("its inputs and attributes do not fit" + tried);
}

// Calls the operator that an ATen node names.
Values call_named(Translator& t, const NodeView& n, bool trusted) {
  const std::string overload = n.has_attribute("overload_name") ? n.attr_string("overload_name") : "";
  return call_operator(t, n, "aten::" + n.attr_string("operator"), overload, trusted);
}

}  // namespace

Value as_output(Translator& t, const Value& result) {
  const auto kind = result.graph->type()->kind();
  if (kind == TypeKind::FloatType || kind == TypeKind::NumberType) {
    return as_output(t, t.call("aten::scalar_tensor", {result, kw("device", t.device())}));
  }
  if (t.on_host(result)) return result.as(ElementType::Int64);
  if (t.bool_on_host(result)) return result.as(ElementType::Bool);
  const auto dtype = t.known_dtype(result);
  return dtype ? result.as(element_type_of(*dtype)) : result;
}

Values aten(Translator& t, const NodeView& n) { return call_named(t, n, false); }

Values any_aten(Translator& t, const NodeView& n) { return call_named(t, n, true); }

TranslateFunction torch_operator(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return [base = name.substr(0, dot), overload](Translator& t, const NodeView& n) {
    return call_operator(t, n, base, overload, true);
  };
}

}  // namespace onnxtorch
