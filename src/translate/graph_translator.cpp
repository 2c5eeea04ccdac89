#include "translate/graph_translator.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/frontend/schema_matching.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <limits>
#include <regex>

#include "registry/registry.h"
#include "translate/attribute_references.h"
#include "translate/scripts.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

constexpr std::string_view kNodeMark = "onnx-node-";  // a graph node's source is this and its ONNX node's number

// TorchScript prints the text of a failing graph node's source range, and, with a graph, the file name.
jit::SourceRange location(size_t number, const NodeLabel& label) {
  const auto source = std::make_shared<jit::Source>(std::string(kNodeMark) + std::to_string(number), label.str(), 1);
  return {source, 0, source->size()};
}

bool has_location(const jit::Node* node) {
  const std::shared_ptr<jit::Source> source = node->sourceRange().source();
  return source && source->text_str().str().starts_with(kNodeMark);
}

void stamp(jit::Node* node, const jit::SourceRange& range) {
  node->setSourceRange(range);
  for (jit::Block* block : node->blocks()) {
    for (jit::Node* inner : block->nodes()) {
      // What a subgraph's own nodes were stamped with stays.
      if (!has_location(inner)) stamp(inner, range);
    }
  }
}

std::optional<std::vector<Dim>> dims_of(const onnx::TypeProto& type) {
  if (!type.has_tensor_type() || !type.tensor_type().has_shape()) return {};
  std::vector<Dim> dims;
  for (const auto& dim : type.tensor_type().shape().dim()) {
    dims.push_back({dim.has_dim_value() && dim.dim_value() >= 0 ? dim.dim_value() : -1, dim.dim_param()});
  }
  return dims;
}

std::optional<at::Tensor> meta_tensor(const InputSpec& input) {
  if (!input.dims || input.type.kind != ValueType::Kind::Tensor) return {};
  std::vector<int64_t> sizes;
  for (const Dim& dim : *input.dims) {
    if (dim.size < 0) return {};
    sizes.push_back(dim.size);
  }
  return at::empty(sizes, at::TensorOptions(storage_dtype(input.type.element)).device(at::kMeta));
}

}  // namespace

ValueType value_type(const onnx::TypeProto& type) {
  const auto element = [](int number) { return static_cast<ElementType>(number); };
  switch (type.value_case()) {
    case onnx::TypeProto::kTensorType: return ValueType::tensor(element(type.tensor_type().elem_type()));
    case onnx::TypeProto::kSparseTensorType: return ValueType::tensor(element(type.sparse_tensor_type().elem_type()));
    case onnx::TypeProto::kSequenceType: return ValueType::sequence(value_type(type.sequence_type().elem_type()));
    case onnx::TypeProto::kOptionalType: return ValueType::optional(value_type(type.optional_type().elem_type()));
    case onnx::TypeProto::kMapType:
      return ValueType::map(element(type.map_type().key_type()), value_type(type.map_type().value_type()).element);
    default: return {};
  }
}

c10::TypePtr torchscript_type(const ValueType& type) {
  switch (type.kind) {
    case ValueType::Kind::Tensor: return c10::TensorType::get();
    case ValueType::Kind::Sequence: return c10::ListType::create(torchscript_type(*type.inner));
    case ValueType::Kind::Optional: return c10::OptionalType::create(torchscript_type(*type.inner));
    case ValueType::Kind::Map: return c10::TupleType::create({c10::TensorType::get(), c10::TensorType::get()});
  }
  return c10::TensorType::get();
}

std::optional<size_t> node_number(const std::string& message) {
  // The innermost frame of a TorchScript traceback stands last.
  static const std::regex pattern(std::string(kNodeMark) + "([0-9]+)");
  std::optional<size_t> number;
  for (auto i = std::sregex_iterator(message.begin(), message.end(), pattern); i != std::sregex_iterator(); ++i) {
    number = std::stoul((*i)[1].str());
  }
  return number;
}

Value Translator::call(std::string_view function, std::vector<Arg> args) {
  Values results = call_all(function, std::move(args));
  if (results.size() != 1) {
    throw std::logic_error(std::string(function) + " has " + std::to_string(results.size()) + " results, not one");
  }
  return results[0];
}

// --- The model ---------------------------------------------------------------------------------------------------------

GraphTranslator::GraphTranslator(const ModelFile& model, const TranslateOptions& options)
    : model_(model), options_(options), graph_(std::make_shared<jit::Graph>()), model_opsets_(opsets_of(model.proto)) {
  program_.graph = graph_;
  program_.strings = c10::make_intrusive<StringPool>();
  reader_ = {model.directory, [this](std::string_view text) { return program_.strings->intern(text); }};
}

Program GraphTranslator::run() {
  Scope top{{}, nullptr, &model_opsets_};
  scope_ = &top;
  collect_gradient_inputs(model_.proto.graph());
  declare_inputs();
  translate(model_.proto.graph());
  for (const auto& output : model_.proto.graph().output()) {
    const Value value = tensor(named(output.name()));
    ValueType type = value.type.known() ? value.type : value_type(output.type());
    if (value.graph->type()->kind() == c10::TypeKind::OptionalType && type.kind != ValueType::Kind::Optional) {
      type = ValueType::optional(type);
    }
    program_.outputs.push_back({output.name(), type});
    graph_->registerOutput(value.graph);
  }
  finish();
  return std::move(program_);
}

void GraphTranslator::declare_inputs() {
  const onnx::GraphProto& graph = model_.proto.graph();
  std::set<std::string> initialized;
  for (const auto& tensor : graph.initializer()) initialized.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) initialized.insert(tensor.values().name());
  for (const auto& input : graph.input()) {
    const InputSpec spec{input.name(), value_type(input.type()), dims_of(input.type()), initialized.contains(input.name())};
    program_.inputs.push_back(spec);
    if (spec.has_default && !options_.overridden.contains(spec.name)) continue;
    jit::Value* value = graph_->addInput();
    value->setType(torchscript_type(spec.type));
    program_.graph_inputs.push_back({GraphInput::Role::Input, program_.inputs.size() - 1});
    if (const auto meta = meta_tensor(spec)) facts_.set_meta(value, *meta);
    define(spec.name, {value, spec.type});
  }
}

void GraphTranslator::declare_initializers(const onnx::GraphProto& graph) {
  const auto declare = [this](const std::string& name, const auto& proto, ElementType type) {
    if (!scope_->names.contains(name)) define(name, bind(name, reader_.read(proto), type));
  };
  for (const auto& tensor : graph.initializer()) declare(tensor.name(), tensor, element_type(tensor));
  for (const auto& sparse : graph.sparse_initializer()) declare(sparse.values().name(), sparse, element_type(sparse.values()));
}

void GraphTranslator::collect_gradient_inputs(const onnx::GraphProto& graph) {
  for (const auto& node : graph.node()) {
    if (node.op_type() != "Gradient") continue;
    program_.needs_autograd = true;
    for (const auto& attribute : node.attribute()) {
      if (attribute.name() == "xs") gradient_inputs_.insert(attribute.strings().begin(), attribute.strings().end());
    }
  }
}

Value GraphTranslator::named(const std::string& name) const {
  for (const Scope* scope = scope_; scope; scope = scope->outer) {
    if (const auto found = scope->names.find(name); found != scope->names.end()) return found->second;
  }
  throw InvalidModelError("nothing defines the value \"" + name + "\"");
}

void GraphTranslator::define(const std::string& name, Value value) {
  if (name.empty()) return;
  if (scope_->outer == nullptr && gradient_inputs_.contains(name) && !value.absent()) {
    value = call("aten::requires_grad_", {call("aten::detach", {tensor(value)}), true}).as(value.type);
  }
  scope_->names[name] = std::move(value);
}

void GraphTranslator::translate(const onnx::GraphProto& graph) {
  declare_initializers(graph);
  for (const auto& node : graph.node()) translate(node);
}

void GraphTranslator::translate(const onnx::NodeProto& node) {
  Values inputs;
  for (const auto& name : node.input()) inputs.push_back(name.empty() ? Value{} : named(name));
  NodeLabel label = label_of(node, *scope_->opsets);
  const OperatorSchema* schema = find_schema(label.domain, node.op_type(), label.version);
  const NodeView view(*this, node, schema, label, std::move(inputs));

  const size_t number = program_.labels.size();
  program_.labels.push_back(label);
  const jit::SourceRange around = std::exchange(location_, location(number, label));
  if (options_.watched == number) watch(view);
  Values outputs;
  try {
    outputs = translate_by(view);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(std::string("cannot be translated: ") + e.what(), label);
  }
  for (size_t i = 0; i < outputs.size() && i < view.output_count(); ++i) {
    if (!outputs[i].type.known() && !outputs[i].absent()) outputs[i].type = view.output_type(i);
    define(node.output(static_cast<int>(i)), outputs[i]);
  }
  location_ = around;
}

Values GraphTranslator::translate_by(const NodeView& view) {
  if (const auto* function = find_function(model_.proto, view.proto())) return expand(*function, view);
  const OperatorSchema* schema = view.schema();
  if (!schema) view.unsupported("no such operator");
  if (const auto* translate = registry().find(schema->domain, schema->name, schema->since_version)) {
    return (*translate)(*this, view);
  }
  for (const FunctionBody& body : schema->bodies) {
    if (body.opset_version > view.label().version && &body != &schema->bodies.front()) continue;
    onnx::FunctionProto function;
    function.ParseFromArray(body.function.data(), static_cast<int>(body.function.size()));
    return expand(function, view);
  }
  view.unsupported("version " + std::to_string(schema->since_version) + " is not supported");
}

Values GraphTranslator::expand(const onnx::FunctionProto& function, const NodeView& view) {
  const onnx::FunctionProto& body =
      expanded_.emplace_back(resolve_attribute_references(function, [&](const std::string& name) { return view.attribute(name); }));
  const Opsets opsets = opsets_of(body);
  Scope scope{{}, nullptr, &opsets};
  Scope* const caller = std::exchange(scope_, &scope);
  for (int i = 0; i < body.input_size(); ++i) scope.names[body.input(i)] = view.input(static_cast<size_t>(i));
  for (const auto& node : body.node()) translate(node);
  Values outputs;
  for (const auto& name : body.output()) outputs.push_back(named(name));
  scope_ = caller;
  return outputs;
}

Values GraphTranslator::subgraph(const onnx::GraphProto& graph, const Values& inputs) {
  if (graph.input_size() != static_cast<int>(inputs.size())) {
    throw InvalidModelError("the subgraph \"" + graph.name() + "\" takes " + std::to_string(graph.input_size()) +
                            " inputs, not " + std::to_string(inputs.size()));
  }
  Scope scope{{}, scope_, scope_->opsets};
  Scope* const outer = std::exchange(scope_, &scope);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Value input = inputs[i];
    if (!input.type.known()) input.type = value_type(graph.input(static_cast<int>(i)).type());
    scope.names[graph.input(static_cast<int>(i)).name()] = std::move(input);
  }
  translate(graph);
  Values outputs;
  for (const auto& output : graph.output()) outputs.push_back(named(output.name()));
  scope_ = outer;
  return outputs;
}

// Notes the shapes of a node's inputs as it runs, for the error message when it fails.
void GraphTranslator::watch(const NodeView& view) {
  for (size_t i = 0; i < view.input_count(); ++i) {
    const Value value = view.tensor(i);
    if (value.absent() || value.graph->type()->kind() != c10::TypeKind::TensorType) continue;
    call_all("onnx_torch::note_shape", {value, static_cast<int64_t>(i)});
  }
}

void GraphTranslator::finish() {
  // What is known by now need not be computed at run time.
  const auto known = facts_.values();
  for (const auto& [value, constant] : known) {
    auto* old = const_cast<jit::Value*>(value);
    if (old->node()->kind() == c10::prim::Param || old->uses().empty()) continue;
    const jit::WithInsertPoint at(*graph_->nodes().begin());
    const Value replacement = known_constant(constant);
    if (replacement.graph->type()->isSubtypeOf(*old->type())) old->replaceAllUsesWith(replacement.graph);
  }
  jit::EliminateDeadCode(graph_);
  jit::PeepholeOptimize(graph_);  // a tensor given for an optional parameter is not None
  jit::ConstantPropagation(graph_);
  jit::EliminateDeadCode(graph_);
  std::vector<GraphInput> used;
  std::vector<Bound> bound;
  for (size_t i = 0, kept = 0; i < program_.graph_inputs.size(); ++i) {
    GraphInput input = program_.graph_inputs[i];
    if (input.role != GraphInput::Role::Input && graph_->inputs()[kept]->uses().empty()) {
      graph_->eraseInput(kept);
      continue;
    }
    if (input.role == GraphInput::Role::Bound) {
      bound.push_back(std::move(program_.bound[input.index]));
      input.index = bound.size() - 1;
    }
    used.push_back(input);
    ++kept;
  }
  program_.graph_inputs = std::move(used);
  program_.bound = std::move(bound);
}

// --- Calls -------------------------------------------------------------------------------------------------------------

namespace {

// The graph's form of an argument: a value of it, or a constant.
struct ToNamedValue {
  jit::Graph& graph;

  jit::NamedValue operator()(None) const { return IValue(); }
  jit::NamedValue operator()(c10::ScalarType dtype) const { return IValue(static_cast<int64_t>(dtype)); }
  jit::NamedValue operator()(const std::vector<std::string>& texts) const { return IValue(c10::List<std::string>(texts)); }
  jit::NamedValue operator()(const Value& value) const { return value.graph; }
  jit::NamedValue operator()(const Values& values) const {
    const auto present = std::ranges::find_if(values, [](const Value& value) { return !value.absent(); });
    c10::TypePtr element = present == values.end() ? c10::TypePtr(c10::TensorType::get()) : present->graph->type();
    std::vector<jit::Value*> items;
    for (const Value& value : values) items.push_back(value.absent() ? graph.insertConstant(IValue()) : value.graph);
    if (std::ranges::any_of(values, &Value::absent)) element = c10::OptionalType::create(element);
    return graph.insertNode(graph.createList(element, items))->output();
  }
  template <typename T>
  jit::NamedValue operator()(const T& constant) const { return IValue(constant); }
};

jit::NamedValue named_value(jit::Graph& graph, const Arg& arg) {
  const jit::NamedValue value = std::visit(ToNamedValue{graph}, arg.data);
  return arg.name.empty() ? value : jit::NamedValue(arg.name, value.value(graph));
}

}  // namespace

Values GraphTranslator::call_all(std::string_view function, std::vector<Arg> args) {
  jit::Node* const end = graph_->insertPoint();
  jit::Node* const before = end->prev();
  std::vector<jit::NamedValue> positional, named;
  for (const Arg& arg : args) (arg.name.empty() ? positional : named).push_back(named_value(*graph_, arg));

  std::vector<jit::Value*> results;
  const bool is_operator = function.find("::") != std::string_view::npos;
  if (is_operator) {
    jit::Value* result =
        jit::emitBuiltinCall(location_, *graph_, c10::Symbol::fromQualString(std::string(function)), positional, named);
    if (jit::Node* tuple = result->node(); tuple->kind() == c10::prim::TupleConstruct) {
      results.assign(tuple->inputs().begin(), tuple->inputs().end());
      tuple->destroy();
    } else if (result->type()->kind() != c10::TypeKind::NoneType) {
      results.push_back(result);
    }
    for (auto node = before->next(); node != end; node = node->next()) facts_.learn(node);
  } else {
    const Script& callee = find_script(std::string(function));
    const jit::MatchedSchema matched =
        jit::matchSchema(callee.function->getSchema(), location_, *graph_, positional, named);
    for (auto node = before->next(); node != end; node = node->next()) facts_.learn(node);
    const auto run = [&](jit::Stack& stack) {
      jit::InterpreterState(callee.code).run(stack);
      if (stack.size() == 1 && stack[0].isTuple()) stack = stack[0].toTupleRef().elements().vec();
    };
    const auto known = callee.deterministic ? facts_.evaluate(matched.inputs, run) : std::nullopt;
    if (known) {
      for (const IValue& value : *known) results.push_back(known_constant(value).graph);
    } else {
      jit::Value* result = jit::insertGraph(*graph_, *callee.function->graph(), matched.inputs).at(0);
      results.push_back(result);
      if (result->type()->kind() == c10::TypeKind::TupleType) {
        const auto unpacked = graph_->insertNode(graph_->createTupleUnpack(result))->outputs();
        results.assign(unpacked.begin(), unpacked.end());
      }
      facts_.learn(matched.inputs, results, false, run);
      // The body may go on changing the list that it returns, so only what follows may take the known value instead.
      for (jit::Value*& item : results) {
        if (const auto value = facts_.take_value(item)) item = known_constant(*value).graph;
      }
    }
  }
  for (auto node = before->next(); node != end; node = node->next()) stamp(node, location_);
  Values values;
  for (jit::Value* result : results) values.push_back({result, {}});
  return values;
}

// --- Conversions -------------------------------------------------------------------------------------------------------

namespace {

// Scripts append to some lists, or set their items.
bool is_changed(const jit::Value* list) {
  return std::ranges::any_of(list->uses(), [](const jit::Use& use) {
    return use.user->maybeSchema() && use.user->schema().is_mutable();
  });
}

bool is_list_of_numbers(const Value& v) {
  const auto& type = v.graph->type();
  return v.graph->node()->kind() == c10::prim::ListConstruct && !is_changed(v.graph) &&
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
  if (on_host(v)) return call("aten::tensor", {v, kw("dtype", c10::kLong), kw("device", device())}).as(ElementType::Int64);
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
  return !v.absent() && v.graph->type()->kind() == c10::TypeKind::IntType ? v : single_element(std::move(v), "aten::Int");
}
Value GraphTranslator::number(Value v) { return single_element(std::move(v), "aten::Float"); }
Value GraphTranslator::boolean(Value v) {
  return !v.absent() && v.graph->type()->kind() == c10::TypeKind::BoolType ? v : single_element(std::move(v), "aten::Bool");
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
  const c10::TypeKind kind = v.graph->type()->kind();
  if (kind == c10::TypeKind::IntType || kind == c10::TypeKind::BoolType) return std::vector<int64_t>{};
  if (const auto known = facts_.value(v.graph); known && (known->isIntList() || known->isBoolList())) {
    return std::vector<int64_t>{static_cast<int64_t>(known->toListRef().size())};
  }
  if (is_list_of_numbers(v)) return std::vector<int64_t>{static_cast<int64_t>(v.graph->node()->inputs().size())};
  const auto meta = facts_.meta(v.graph);
  return meta ? std::optional(meta->sizes().vec()) : std::nullopt;
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

// --- Constants ---------------------------------------------------------------------------------------------------------

jit::Value* GraphTranslator::bind(std::string name, const IValue& value) {
  jit::Value* input = graph_->addInput();
  if (!value.isTensor()) input->setType(value.type());  // a tensor's would be of its sizes, which lists do not take
  program_.graph_inputs.push_back({GraphInput::Role::Bound, program_.bound.size()});
  program_.bound.push_back({std::move(name), value});
  facts_.set_value(input, value);
  return input;
}

Value GraphTranslator::bind(std::string name, const at::Tensor& stored, ElementType type) {
  return {bind(std::move(name), stored), ValueType::tensor(type)};
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
  return bind("", reader_.read(tensor), element_type(tensor));
}
Value GraphTranslator::constant(const onnx::SparseTensorProto& tensor) {
  return bind("", reader_.read(tensor), element_type(tensor.values()));
}
Value GraphTranslator::constant(const at::Tensor& stored, ElementType type) { return bind("", stored, type); }

Value GraphTranslator::object(const IValue& object) { return {bind("", object), {}}; }

at::Tensor GraphTranslator::stored(const onnx::TensorProto& tensor) { return reader_.read(tensor); }

int64_t GraphTranslator::string_id(std::string_view text) { return program_.strings->intern(text); }

Value GraphTranslator::string(std::string_view text) {
  return bind("", at::scalar_tensor(string_id(text), c10::kLong), ElementType::String);
}

Value GraphTranslator::strings(const std::vector<std::string>& texts) {
  std::vector<int64_t> ids;
  for (const std::string& text : texts) ids.push_back(string_id(text));
  return bind("", at::tensor(ids, c10::kLong), ElementType::String);
}

// Lowering for another device rewrites this constant.
Value GraphTranslator::device() { return {graph_->insertConstant(at::Device(at::kCPU)), {}}; }

Value GraphTranslator::string_pool() {
  if (!string_pool_) {
    string_pool_ = graph_->addInput();
    string_pool_->setType(c10::getCustomClassType<c10::intrusive_ptr<StringPool>>());
    program_.graph_inputs.push_back({GraphInput::Role::Strings, 0});
  }
  return {string_pool_, {}};
}

// --- Control flow ------------------------------------------------------------------------------------------------------

// A value as a branch or an iteration returns it beside `other`: host values stay on the host only where both are.
Value GraphTranslator::unified(const Value& value, const Value& other) {
  if (value.absent()) return {graph_->insertConstant(IValue()), other.type};
  const bool same = !other.absent() && *value.graph->type() == *other.graph->type();
  return same ? value : tensor(value);
}

Values GraphTranslator::branch(Value condition, const std::function<Values()>& then_branch,
                               const std::function<Values()>& else_branch) {
  condition = boolean(condition);
  if (const auto known = facts_.value(condition.graph)) return known->toBool() ? then_branch() : else_branch();

  jit::Node* node = graph_->insertNode(graph_->create(c10::prim::If, {condition.graph}, 0));
  Values results[2];
  for (int i = 0; i < 2; ++i) {
    const jit::WithInsertPoint inside(node->addBlock());
    results[i] = i == 0 ? then_branch() : else_branch();
  }
  if (results[0].size() != results[1].size()) throw InvalidModelError("the branches give different numbers of outputs");
  Values outputs;
  for (size_t k = 0; k < results[0].size(); ++k) {
    const Value sides[2] = {results[0][k], results[1][k]};
    Value merged[2];
    for (int i = 0; i < 2; ++i) {
      const jit::WithInsertPoint inside(node->blocks()[i]);
      merged[i] = unified(sides[i], sides[1 - i]);
      node->blocks()[i]->registerOutput(merged[i].graph);
    }
    const auto type = c10::unifyTypes(merged[0].graph->type(), merged[1].graph->type());
    if (!type) throw InvalidModelError("the branches give output " + std::to_string(k) + " different types");
    ValueType onnx_type = merged[0].type.known() ? merged[0].type : merged[1].type;
    if ((*type)->kind() == c10::TypeKind::OptionalType && onnx_type.kind != ValueType::Kind::Optional) {
      onnx_type = ValueType::optional(onnx_type);
    }
    outputs.push_back({node->addOutput()->setType(*type), onnx_type});
  }
  stamp(node, location_);
  return outputs;
}

Values GraphTranslator::loop(Value trip_count, Value condition, Values carried,
                             const std::function<Step(Value, const Values&)>& body) {
  const Value count = trip_count.absent() ? scalar(std::numeric_limits<int64_t>::max()) : integer(trip_count);
  const Value first = condition.absent() ? scalar(true) : boolean(condition);
  jit::Node* node = graph_->create(c10::prim::Loop, {count.graph, first.graph}, 0);
  for (Value& value : carried) {
    value = tensor(value);
    if (value.absent()) value.graph = graph_->insertConstant(IValue());
    node->addInput(value.graph);
  }
  graph_->insertNode(node);
  jit::Block* block = node->addBlock();
  const Value iteration{block->addInput()->setType(c10::IntType::get()), ValueType::tensor(ElementType::Int64)};
  Values inside;
  for (const Value& value : carried) {
    // An empty optional says nothing of what it will hold; its ONNX type does.
    const bool empty = value.graph->type()->kind() == c10::TypeKind::NoneType;
    inside.push_back({block->addInput()->setType(empty ? torchscript_type(value.type) : value.graph->type()), value.type});
  }
  {
    const jit::WithInsertPoint at(block);
    Step step = body(iteration, inside);
    if (step.carried.size() != carried.size()) throw InvalidModelError("the loop body returns a different number of values");
    block->registerOutput((step.condition.absent() ? scalar(true) : boolean(step.condition)).graph);
    for (size_t i = 0; i < carried.size(); ++i) {
      const Value next = step.carried[i].absent() ? Value{graph_->insertConstant(IValue()), inside[i].type} : tensor(step.carried[i]);
      if (!next.graph->type()->isSubtypeOf(*inside[i].graph->type())) {
        throw InvalidModelError("the loop carries a value that changes from " + inside[i].graph->type()->str() + " to " +
                                next.graph->type()->str());
      }
      block->registerOutput(next.graph);
      if (!carried[i].type.known()) carried[i].type = next.type;
    }
  }
  Values outputs;
  for (size_t i = 0; i < carried.size(); ++i) {
    outputs.push_back({node->addOutput()->setType(inside[i].graph->type()), carried[i].type});
  }
  stamp(node, location_);
  return outputs;
}

Program translate(const ModelFile& model, const TranslateOptions& options) { return GraphTranslator(model, options).run(); }

}  // namespace onnxtorch
