#include "translate/graph_translator.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/frontend/schema_matching.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/csrc/jit/passes/peephole_non_tensor.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <unordered_set>

#include "base/interruption.h"
#include "base/prepare_guard.h"
#include "base/run_guard.h"
#include "base/text_of.h"
#include "graph/constant_propagation.h"
#include "graph/graph_location.h"
#include "graph/known_type.h"
#include "graph/symbols.h"
#include "graph/writes.h"
#include "translate/aten_operators.h"
#include "translate/attribute_references.h"
#include "translate/main_graph.h"
#include "translate/node_rules.h"
#include "translate/registry.h"
#include "translate/signature.h"
#include "translate/user_operators.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

// Gives facts that hold with the sizes of a run, too, if the variant has any beyond those that are always tried.
Facts facts_for(const Variant& variant) {
  if (variant.sizes.empty()) return {};
  const size_t of_run = Facts::trial_sizes(0).size();
  return {of_run + 2, of_run};
}

// Gives the sizes of each dimension of an input in each trial. `symbols` has those of the open ones; `of_run` are the
// input's sizes in a run, if any are given: they are tried, too, and twice as much, as the run after it may have more.
std::vector<Facts::Sizes> trials_of(const InputSpec& input, std::map<std::string, Facts::Sizes>& symbols,
                                    std::span<const int64_t> of_run) {
  std::vector<Facts::Sizes> trials;
  for (const Dim& dim : *input.dims) {
    const bool is_open = dim.size < 0;
    const bool is_first = trials.empty();
    Facts::Sizes& sizes = trials.emplace_back(Facts::trial_sizes(0).size(), dim.size);
    if (is_open) {
      const std::string name = has_name(dim) ? dim.symbol : input.name + "/" + std::to_string(symbols.size());
      sizes = symbols.try_emplace(name, Facts::trial_sizes(symbols.size(), is_first)).first->second;
    }
    if (of_run.empty()) continue;
    const int64_t size = of_run[trials.size() - 1];
    sizes.insert(sizes.end(), {size, is_open ? 2 * size : size});
  }
  return trials;
}

}  // namespace

GraphTranslator::GraphTranslator(const std::shared_ptr<const ModelFile>& model, const TranslateOptions& options)
    : file_(model),
      model_(model->proto),
      options_(options),
      graph_(std::make_shared<jit::Graph>()),
      facts_(facts_for(options.variant)),
      reader_{model->external, options.external,
              [this](std::string_view text) { return program_.strings->intern(text); }},
      model_opsets_(opsets_of(model_)),
      main_{{}, nullptr, &model_opsets_, file_},
      declared_outputs_(declared_outputs(model_, options.shapes)) {
  program_.graph = graph_;
  program_.strings = c10::make_intrusive<StringPool>();
  program_.copies = model->copies;
}

void GraphTranslator::translate_model() {
  collect_gradient_inputs(model_.graph());
  declare_inputs();
  translate(model_.graph());
}

Program GraphTranslator::run() {
  translate_model();
  if (options_.variant.outputs.empty()) {
    for (const auto& output : model_.graph().output()) give(output.name());
  } else {
    for (const std::string& name : options_.variant.outputs) {
      if (!main_.names.contains(name)) throw InputError("the model's graph has no value \"" + name + "\"");
      give(name);
    }
  }
  finish();
  return std::move(program_);
}

// Makes a value an output of the graph.
void GraphTranslator::give(const std::string& name) {
  Value value = tensor(named(name));
  if (value.absent()) throw InvalidModelError("nothing gives the output \"" + name + "\" a value");
  ValueType type = value.type.known() ? value.type : scope_->declared[name];
  const bool last_only = options_.variant.last_only.contains(name) && is_tensor(value.graph);
  if (last_only) value.graph = call("aten::slice", {value, 1, -1, none}).graph;
  if (value.graph->type()->kind() == c10::TypeKind::OptionalType && type.kind != ValueType::Kind::Optional) {
    type = ValueType::optional(type);
  }
  const auto declared = std::ranges::find(declared_outputs_, name, &OutputSpec::name);
  auto dims = declared == declared_outputs_.end() ? std::nullopt : declared->dims;
  if (last_only && dims && dims->size() > 1) (*dims)[1] = Dim{1, {}};
  program_.outputs.push_back({name, type, dims});
  graph_->registerOutput(value.graph);
}

void GraphTranslator::declare_inputs() {
  program_.inputs = declared_inputs(model_, options_.shapes);
  check_sizes(options_.shapes, program_.inputs);
  trials_.resize(program_.inputs.size());
  std::map<std::string, Facts::Sizes> symbols;
  for (size_t i = 0; i < program_.inputs.size(); ++i) {
    const InputSpec& spec = program_.inputs[i];
    if (spec.has_default && !options_.variant.overridden.contains(spec.name)) continue;
    jit::Value* value = graph_->addInput();
    value->setType(torchscript_type(spec.type));
    program_.graph_inputs.push_back({GraphInput::Role::Input, i});
    if (spec.dims && spec.type.kind == ValueType::Kind::Tensor) {
      const std::vector<std::vector<int64_t>>& of_run = options_.variant.sizes;
      trials_[i] = trials_of(spec, symbols, of_run.empty() ? std::span<const int64_t>{} : of_run[i]);
      facts_.set_input_sizes(value, storage_dtype(spec.type.element), trials_[i]);
    }
    define(spec.name, {value, spec.type});
  }
}

void GraphTranslator::declare_initializers(const onnx::GraphProto& graph) {
  std::set<std::string> declared;
  const auto is_needed = [&](const std::string& name) {
    if (name.empty()) return false;
    if (!declared.insert(name).second) throw InvalidModelError("two initializers are named \"" + name + "\"");
    return !scope_->names.contains(name);
  };
  std::vector<const onnx::TensorProto*> needed;
  for (const auto& tensor : graph.initializer()) {
    if (is_needed(tensor.name())) needed.push_back(&tensor);
  }
  const std::vector<at::Tensor> tensors = reader_.read(needed, scope_->owner);
  for (size_t i = 0; i < needed.size(); ++i) {
    const std::string& name = needed[i]->name();
    define(name, bind(name, tensors[i], element_type(*needed[i])));
    program_.constants.back().source = needed[i];
  }
  for (const auto& sparse : graph.sparse_initializer()) {
    const std::string& name = sparse.values().name();
    if (is_needed(name)) define(name, bind(name, reader_.read(sparse, scope_->owner), element_type(sparse.values())));
  }
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
  for (const auto* infos : {&graph.value_info(), &graph.output()}) {
    for (const auto& info : *infos) scope_->declared[info.name()] = value_type(info.type());
  }
  for (const auto& node : graph.node()) translate(node);
}

void GraphTranslator::translate(const onnx::NodeProto& node) {
  check_interruption();
  Values inputs;
  for (const auto& name : node.input()) inputs.push_back(name.empty() ? Value{} : named(name));
  NodeLabel label = label_of(node, *scope_->opsets);
  check_limits(label);
  const OperatorSchema* schema = find_schema(label.domain, node.op_type(), label.version);
  const NodeView view(*this, node, schema, label, std::move(inputs));

  const size_t number = program_.nodes.size();
  const std::optional<size_t> around = std::exchange(node_, number);
  program_.nodes.push_back({label, node.output_size() > 0 ? node.output(0) : "", around});
  const jit::SourceRange around_location = std::exchange(location_, location(number, label));
  if (options_.variant.guarded) mark(kCheckNode, {static_cast<int64_t>(number)});
  if (options_.watched == number) watch(view);
  if (options_.variant.timed) mark("onnx_torch::begin_node", {static_cast<int64_t>(number)});
  Values outputs = outputs_of(view);
  if (options_.variant.timed) mark("onnx_torch::end_node");
  for (size_t i = 0; i < outputs.size() && i < view.output_count(); ++i) {
    if (!outputs[i].type.known()) outputs[i].type = type_of_output(view, i);
    define(node.output(static_cast<int>(i)), outputs[i]);
  }
  location_ = around_location;
  node_ = around;
}

ValueType GraphTranslator::type_of_output(const NodeView& view, size_t i) const {
  const ValueType type = view.output_type(i);
  const auto declared = scope_->declared.find(view.proto().output(static_cast<int>(i)));
  return type.known() || declared == scope_->declared.end() ? type : declared->second;
}

Values GraphTranslator::outputs_of(const NodeView& view) {
  try {
    return translate_by(view);
  } catch (const InvalidModelError& e) {
    if (!e.node().empty()) throw;
    throw InvalidModelError(e.what(), view.label());
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw Error("cannot be translated: " + text_of(e), view.label());
  }
}

Value GraphTranslator::unknown(const ValueType& type) {
  return {graph_->insertNode(graph_->createUninitialized(torchscript_type(type)))->output(), type};
}

void GraphTranslator::return_to(const TranslationPosition& position) {
  scope_ = position.scope;
  expanding_.resize(position.depth);
  nesting_ = position.nesting;
  node_ = position.node;
  location_ = position.location;
}

Values GraphTranslator::translate_by(const NodeView& view) {
  if (const auto* function = find_function(model_, view.proto())) return expand(*function, view);
  const NodeLabel& label = view.label();
  if (const auto translate = find_user_operator(label.domain, label.op_type, label.version))
    return (*translate)(*this, view);
  const OperatorSchema* schema = view.schema();
  if (!schema) view.unsupported("no such operator");
  if (schema->name == "ATen" && options_.any_aten) return any_aten(*this, view);
  check_node(view);
  if (const auto* translate = registry().find(schema->domain, schema->name, schema->since_version)) {
    Values outputs = (*translate)(*this, view);
    check_outputs(view, outputs);
    return outputs;
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
  if (std::ranges::find(expanding_, &function) != expanding_.end()) view.fail("the function calls itself");
  if (view.input_count() > static_cast<size_t>(function.input_size())) {
    view.fail("has " + std::to_string(view.input_count()) + " inputs; the function takes " +
              std::to_string(function.input_size()));
  }
  enter();
  expanding_.push_back(&function);
  const auto resolved = std::make_shared<const onnx::FunctionProto>(
      resolve_attribute_references(function, [&](const std::string& name) { return view.attribute(name); }));
  const onnx::FunctionProto& body = *resolved;
  const Opsets opsets = opsets_of(body);
  Scope scope{{}, nullptr, &opsets, resolved};
  Scope* const caller = std::exchange(scope_, &scope);
  for (int i = 0; i < body.input_size(); ++i) scope.names[body.input(i)] = view.input(static_cast<size_t>(i));
  for (const auto& node : body.node()) translate(node);
  Values outputs;
  for (const auto& name : body.output()) outputs.push_back(named(name));
  scope_ = caller;
  expanding_.pop_back();
  --nesting_;
  return outputs;
}

Values GraphTranslator::subgraph(const onnx::GraphProto& graph, const Values& inputs) {
  if (graph.input_size() != static_cast<int>(inputs.size())) {
    throw InvalidModelError("the subgraph \"" + graph.name() + "\" takes " + std::to_string(graph.input_size()) +
                            " inputs, not " + std::to_string(inputs.size()));
  }
  enter();
  Scope scope{{}, scope_, scope_->opsets, scope_->owner};
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
  --nesting_;
  return outputs;
}

void GraphTranslator::check_limits(const NodeLabel& label) const {
  check_preparation();
  if (const double most = options_.limits.nodes; static_cast<double>(program_.nodes.size()) >= most) {
    throw StoppedError("the model has more nodes than the " + std::to_string(static_cast<int64_t>(most)) +
                           " that the option limits allows it (nodes), once its functions are inlined; allow more if "
                           "you trust the model with it",
                       label);
  }
}

// Enters a function or a subgraph. Each of these takes some of the stack, so that only so many may be nested.
void GraphTranslator::enter() {
  constexpr size_t kMostNesting = 200;
  if (nesting_ >= kMostNesting) {
    throw InvalidModelError("its functions and subgraphs are nested more than " + std::to_string(kMostNesting) +
                            " deep");
  }
  ++nesting_;
}

// Notes the shapes of a node's inputs as it runs, for the error message when it fails.
void GraphTranslator::watch(const NodeView& view) {
  for (size_t i = 0; i < view.input_count(); ++i) {
    const Value value = view.tensor(i);
    if (value.absent() || value.graph->type()->kind() != c10::TypeKind::TensorType) continue;
    call_all("onnx_torch::note_shape", {value, static_cast<int64_t>(i)});
  }
}

// Calls a function for its effect, which is none while translating.
void GraphTranslator::mark(const char* function, const std::vector<jit::NamedValue>& arguments) {
  jit::emitBuiltinCall(location_, *graph_, c10::Symbol::fromQualString(function), arguments, {});
}

// Gives the type of each result of a branch to the value that the branch computes for it and returns.
void stamp_results(jit::Block* branch, at::ArrayRef<jit::Value*> results) {
  for (size_t i = 0; i < results.size(); ++i) {
    jit::Value* const returned = branch->outputs()[i];
    if (returned->node()->owningBlock() == branch && *returned->type() == *c10::TensorType::get() &&
        results[i]->type()->kind() == c10::TypeKind::TensorType) {
      returned->setType(results[i]->type());
    }
  }
}

// Gives tensors the element types and sizes that are known, for passes to read.
void GraphTranslator::stamp_types(jit::Block* block) {
  for (jit::Value* input : block->inputs()) facts_.stamp(input);
  for (jit::Node* node : block->nodes()) {
    for (jit::Value* output : node->outputs()) facts_.stamp(output);
    for (jit::Block* inner : node->blocks()) {
      if (node->kind() == c10::prim::If) stamp_results(inner, node->outputs());
      stamp_types(inner);
    }
  }
}

// Gives the inputs their element types: that of an input is declared, and a constant has its own, whatever else is
// known of them.
void GraphTranslator::stamp_inputs() {
  for (size_t i = 0; i < program_.graph_inputs.size(); ++i) {
    const auto& [role, index] = program_.graph_inputs[i];
    jit::Value* const value = graph_->inputs()[i];
    if (value->type()->kind() != c10::TypeKind::TensorType) continue;
    if (role == GraphInput::Role::Input) {
      value->setType(type_like(value, storage_dtype(program_.inputs[index].type.element)));
    } else if (const at::Tensor& tensor = program_.constants[index].value.toTensor(); tensor.defined()) {
      value->setType(type_like(value, tensor.scalar_type()));
    }
  }
}

namespace {

bool is_floating(const jit::Value* value) { return c10::isFloatingType(type_of(value).value_or(c10::kLong)); }

bool is_array_of_bytes(const jit::Value* value) {
  const auto type = type_of(value);
  return (type == c10::kByte || type == c10::kChar) &&
         value->type()->expectRef<c10::TensorType>().dim().value_or(0) > 1;
}

// Finds the floating values of a block that are made of int8 or uint8 arrays: weights, maybe, that a pass may leave in
// 8 bits.
std::unordered_set<const jit::Value*> made_of_bytes(const jit::Block& block) {
  std::unordered_set<const jit::Value*> found;
  for (const jit::Node* node : block.nodes()) {
    const bool made = std::ranges::any_of(
        node->inputs(), [&](const jit::Value* v) { return is_array_of_bytes(v) || found.contains(v); });
    if (made && node->outputs().size() == 1 && is_floating(node->output())) found.insert(node->output());
  }
  return found;
}

}  // namespace

// Replaces what computes known values by these values.
void GraphTranslator::place_known(jit::Block* block) {
  const auto kept = block == graph_->block() ? made_of_bytes(*block) : std::unordered_set<const jit::Value*>();
  const auto place = [&](jit::Value* old) {
    const auto known = facts_.values().find(old);
    if (known == facts_.values().end() || old->uses().empty() || kept.contains(old)) return;
    const jit::WithInsertPoint at(*graph_->nodes().begin());
    const Value constant = known_constant(c10::IValue(known->second));
    if (constant.graph->type()->isSubtypeOf(*c10::unshapedType(old->type()))) old->replaceAllUsesWith(constant.graph);
  };
  for (jit::Node* node : block->nodes()) {
    for (jit::Value* output : node->outputs()) place(output);
    for (jit::Block* inner : node->blocks()) place_known(inner);
  }
}

void GraphTranslator::finish() {
  for (const auto& input : trials_) {
    std::vector<SizeRange>& ranges = program_.tried.emplace_back();
    for (const Facts::Sizes& sizes : input) ranges.push_back(facts_.range(sizes));
  }
  stamp_types(graph_->block());
  place_known(graph_->block());
  eliminate_dead_code(graph_);
  stamp_inputs();
  jit::PeepholeOptimizeNonTensor(graph_);  // a tensor given for an optional parameter is not None
  // Values that follow from constants are known, but for what the host does in branches and loops, and with lists.
  const MemoryScope memory(most_constant_bytes());
  if (has_host_work(*graph_)) propagate_constants(graph_);
  if (has_host_work(*graph_)) {
    jit::PeepholeOptimize(graph_);
    propagate_constants(graph_);
  }
  eliminate_dead_code(graph_);
  drop_unused(program_);
  infer_types(graph_->block());
  if (has_open_sizes(program_)) program_.translated_hash = std::hash<std::string>()(graph_->toString());
}

Program translate(const std::shared_ptr<const ModelFile>& model, const TranslateOptions& options) {
  const PrepareGuard guard(options.limits);
  return GraphTranslator(model, options).run();
}

const onnx::GraphProto& main_graph(const Translator& translator) {
  return dynamic_cast<const GraphTranslator&>(translator).main_graph();
}

}  // namespace onnxtorch
