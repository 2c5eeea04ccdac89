// Conversions between the forms of a value, look-ups of what is known of values, and constants.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/custom_class.h>

#include <algorithm>

#include "graph/writes.h"
#include "translate/graph_translator.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

bool is_list_of_numbers(const Value& v) {
  const auto& type = v.graph->type();
  return v.graph->node()->kind() == c10::prim::ListConstruct && !is_written(v.graph) &&
         (type->isSubtypeOf(*c10::ListType::ofInts()) || type->isSubtypeOf(*c10::ListType::ofBools()));
}

}  // namespace

bool GraphTranslator::on_host(const Value& v) const {
  const auto& type = v.graph->type();
  return type->kind() == c10::TypeKind::IntType || type->isSubtypeOf(*c10::ListType::ofInts());
}

bool GraphTranslator::bool_on_host(const Value& v) const {
  const auto& type = v.graph->type();
  return type->kind() == c10::TypeKind::BoolType || type->isSubtypeOf(*c10::ListType::ofBools());
}

Value GraphTranslator::tensor(Value v) {
  if (v.absent()) return v;
  if (on_host(v)) {
    const ElementType type = v.type.element == ElementType::Int32 ? ElementType::Int32 : ElementType::Int64;
    return call("aten::tensor", {v, kw("dtype", storage_dtype(type)), kw("device", device())}).as(type);
  }
  if (bool_on_host(v)) {
    return call("aten::tensor", {v, kw("dtype", c10::kBool), kw("device", device())}).as(ElementType::Bool);
  }
  return v;
}

Value GraphTranslator::ints(Value v) {
  if (v.absent()) return v;
  if (v.graph->type()->kind() == c10::TypeKind::IntType) return scalar(Values{v}).as(v.type);
  if (on_host(v)) return v;
  if (const auto known = known_ints(v)) return scalar(*known).as(v.type);
  return call("read_ints", {v}).as(v.type);
}

Value GraphTranslator::single_element(Value v, const char* conversion) {
  if (v.absent()) return v;
  if (v.graph->type()->kind() == c10::TypeKind::ListType) v = call("aten::__getitem__", {v, 0});
  if (v.graph->type()->kind() == c10::TypeKind::TensorType) {
    if (const auto known = facts_.value(v.graph); known && known->toTensor().numel() == 1) {
      v.graph = graph_->insertConstant(known->toTensor().item());
    } else {
      v = call("aten::reshape", {v, std::vector<int64_t>{}});
    }
  }
  return call(conversion, {v});
}

Value GraphTranslator::integer(Value v) {
  return !v.absent() && v.graph->type()->kind() == c10::TypeKind::IntType ? v
                                                                          : single_element(std::move(v), "aten::Int");
}
Value GraphTranslator::number(Value v) { return single_element(std::move(v), "aten::Float"); }
Value GraphTranslator::boolean(Value v) {
  return !v.absent() && v.graph->type()->kind() == c10::TypeKind::BoolType ? v
                                                                           : single_element(std::move(v), "aten::Bool");
}

std::optional<std::vector<int64_t>> GraphTranslator::known_ints(const Value& v) const {
  const auto known = v.absent() ? std::nullopt : facts_.value(v.graph);
  if (!known) return {};
  if (known->isInt()) return std::vector<int64_t>{known->toInt()};
  if (known->isIntList()) return known->toIntVector();
  if (!known->isTensor() || !c10::isIntegralType(known->toTensor().scalar_type(), true)) return {};
  const at::Tensor flat = known->toTensor().to(c10::kLong).reshape(-1).contiguous();
  return std::vector<int64_t>(flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel());
}

std::optional<double> GraphTranslator::known_number(const Value& v) const {
  const auto known = v.absent() ? std::nullopt : facts_.value(v.graph);
  if (!known || !known->isTensor() || known->toTensor().dim() != 0 || known->toTensor().is_complex()) return {};
  return known->toTensor().item().toDouble();
}

std::optional<std::vector<int64_t>> GraphTranslator::known_shape(const Value& v) const {
  if (v.absent()) return {};
  const auto& type = v.graph->type();
  if (type->kind() == c10::TypeKind::IntType || type->kind() == c10::TypeKind::BoolType) return std::vector<int64_t>{};
  if (type->isSubtypeOf(*c10::ListType::ofInts()) || type->isSubtypeOf(*c10::ListType::ofBools())) {
    if (const auto length = facts_.length(v.graph)) return std::vector<int64_t>{static_cast<int64_t>(*length)};
  }
  if (is_list_of_numbers(v)) return std::vector<int64_t>{static_cast<int64_t>(v.graph->node()->inputs().size())};
  const auto meta = facts_.meta(v.graph);
  return meta && meta->defined() ? std::optional(meta->sizes().vec()) : std::nullopt;
}

std::optional<std::vector<std::optional<int64_t>>> GraphTranslator::known_sizes(const Value& v) const {
  std::vector<std::optional<int64_t>> sizes;
  if (const auto shape = known_shape(v)) {
    sizes.assign(shape->begin(), shape->end());
    return sizes;
  }
  const auto shape = v.absent() ? std::nullopt : facts_.shape(v.graph);
  if (!shape) return {};
  const std::vector<c10::ShapeSymbol> found = shape->sizes().value();
  for (const c10::ShapeSymbol& size : found) {
    sizes.push_back(size.is_static() ? std::optional(size.static_size()) : std::nullopt);
  }
  return sizes;
}

std::optional<c10::ScalarType> GraphTranslator::known_dtype(const Value& v) const {
  return v.absent() ? std::nullopt : facts_.dtype(v.graph);
}

std::optional<Values> GraphTranslator::items(const Value& v) {
  Values result;
  if (v.absent()) return {};
  if (const auto kind = v.graph->type()->kind(); kind == c10::TypeKind::IntType || kind == c10::TypeKind::BoolType) {
    return Values{v};
  }
  if (is_list_of_numbers(v)) {
    for (jit::Value* item : v.graph->node()->inputs()) result.push_back({item, v.type});
    return result;
  }
  const auto known = known_ints(v);
  if (!known || known_shape(v)->size() > 1) return {};
  for (const int64_t item : *known) result.push_back(scalar(item).as(v.type));
  return result;
}

jit::Value* GraphTranslator::bind(std::string name, const IValue& value) {
  jit::Value* input = graph_->addInput();
  if (!value.isTensor()) input->setType(value.type());  // a tensor's type would have its sizes, which lists do not take
  program_.graph_inputs.push_back({GraphInput::Role::Constant, program_.constants.size()});
  program_.constants.push_back({std::move(name), value, {}});
  facts_.set_value(input, value);
  return input;
}

Value GraphTranslator::bind(std::string name, const at::Tensor& stored, ElementType type) {
  const bool trainable = options_.trainable && !name.empty() && is_differentiable(type);
  jit::Value* input = bind(std::move(name), stored);
  program_.constants.back().element = type;
  if (trainable) facts_.set_changing(input);
  return {input, ValueType::tensor(type)};
}

Value GraphTranslator::known_constant(const IValue& value) {
  if (value.isTensor()) return constant(value.toTensor(), ElementType::Undefined);
  if (value.isTensorList()) {
    Values items;
    for (const at::Tensor& item : value.toTensorVector()) items.push_back(constant(item, ElementType::Undefined));
    return {named_value(*graph_, items).value(*graph_), {}};
  }
  return {graph_->insertConstant(value), {}};
}

Value GraphTranslator::scalar(Arg value) {
  const Value result{named_value(*graph_, value).value(*graph_), {}};
  if (is_list_of_numbers(result)) facts_.learn(result.graph->node());
  return result;
}

Value GraphTranslator::constant(const onnx::TensorProto& tensor) {
  return bind("", reader_.read(tensor, scope_->owner), element_type(tensor));
}
Value GraphTranslator::constant(const onnx::SparseTensorProto& tensor) {
  return bind("", reader_.read(tensor, scope_->owner), element_type(tensor.values()));
}
Value GraphTranslator::constant(const at::Tensor& stored, ElementType type) { return bind("", stored, type); }

Value GraphTranslator::object(const IValue& object) { return {bind("", object), {}}; }

at::Tensor GraphTranslator::stored(const onnx::TensorProto& tensor) { return reader_.read(tensor, scope_->owner); }

int64_t GraphTranslator::string_id(std::string_view text) { return program_.strings->intern(text); }

Value GraphTranslator::string(std::string_view text) {
  return bind("", at::scalar_tensor(string_id(text), c10::kLong), ElementType::String);
}

Value GraphTranslator::strings(const std::vector<std::string>& texts) {
  std::vector<int64_t> ids;
  for (const std::string& text : texts) ids.push_back(string_id(text));
  return bind("", at::tensor(ids, c10::kLong), ElementType::String);
}

// Gives the device as a constant, which lowering for another device rewrites.
Value GraphTranslator::device() { return {graph_->insertConstant(at::Device(at::kCPU)), {}}; }

Value GraphTranslator::string_pool() {
  if (!string_pool_) {
    string_pool_ = graph_->addInput();
    string_pool_->setType(c10::getCustomClassType<c10::intrusive_ptr<StringPool>>());
    program_.graph_inputs.push_back({GraphInput::Role::Strings, 0});
  }
  return {string_pool_, {}};
}

}  // namespace onnxtorch
