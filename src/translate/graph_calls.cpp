// The translation of calls of operators and scripts.
#include <torch/csrc/jit/frontend/schema_matching.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "graph/graph_location.h"
#include "translate/graph_translator.h"
#include "translate/inlining.h"
#include "translate/scripts.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;
using c10::IValue;

// The graph's form of an argument: a value of it, or a constant.
struct ToNamedValue {
  jit::Graph& graph;

  jit::NamedValue operator()(None) const { return IValue(); }
  jit::NamedValue operator()(c10::ScalarType dtype) const { return IValue(static_cast<int64_t>(dtype)); }
  jit::NamedValue operator()(ElementType type) const { return (*this)(storage_dtype(type)); }
  jit::NamedValue operator()(const std::vector<std::string>& texts) const {
    return IValue(c10::List<std::string>(texts));
  }
  jit::NamedValue operator()(const Value& value) const { return value.graph; }
  jit::NamedValue operator()(const Values& values) const {
    const auto present = std::ranges::find_if(values, [](const Value& value) { return !value.absent(); });
    c10::TypePtr element =
        present == values.end() ? c10::TypePtr(c10::TensorType::get()) : c10::unshapedType(present->graph->type());
    std::vector<jit::Value*> items;
    for (const Value& value : values) items.push_back(value.absent() ? graph.insertConstant(IValue()) : value.graph);
    if (std::ranges::any_of(values, &Value::absent)) element = c10::OptionalType::create(element);
    return graph.insertNode(graph.createList(element, items))->output();
  }
  template <typename T>
  jit::NamedValue operator()(const T& constant) const {
    return IValue(constant);
  }
};

// Tells whether a node is a constant that nothing can write to.
bool is_plain_constant(const jit::Node* node) {
  using Kind = c10::TypeKind;
  static const std::set<Kind> kinds{Kind::BoolType,   Kind::IntType,  Kind::FloatType,
                                    Kind::StringType, Kind::NoneType, Kind::DeviceObjType};
  return node->kind() == c10::prim::Constant && kinds.contains(node->output()->type()->kind());
}

}  // namespace

jit::NamedValue named_value(jit::Graph& graph, const Arg& arg) {
  const jit::NamedValue value = std::visit(ToNamedValue{graph}, arg.data);
  return arg.name.empty() ? value : jit::NamedValue(arg.name, value.value(graph));
}

// Lets one node stand for equal constants, of which there are more than of all other nodes.
void GraphTranslator::share_constants(jit::Node* before, const jit::Node* end,
                                      const std::vector<jit::Value*>& results) {
  if (end->owningBlock() != graph_->block()) return;
  for (jit::Node* node = before->next(); node != end;) {
    jit::Node* const constant = std::exchange(node, node->next());
    if (!is_plain_constant(constant) || std::ranges::find(results, constant->output()) != results.end()) continue;
    const auto [same, is_new] = shared_constants_.insert(constant);
    if (is_new) continue;
    constant->output()->replaceAllUsesWith((*same)->output());
    constant->destroy();
  }
}

Values GraphTranslator::call_all(std::string_view function, std::vector<Arg> args) {
  jit::Node* const end = graph_->insertPoint();
  jit::Node* const before = end->prev();
  std::vector<jit::NamedValue> positional, named;
  for (const Arg& arg : args) (arg.name.empty() ? positional : named).push_back(named_value(*graph_, arg));

  std::vector<jit::Value*> results;
  const bool is_operator = function.find("::") != std::string_view::npos;
  const Script* const script = is_operator ? nullptr : &find_script(std::string(function));
  if (is_operator || script->kept) {
    const std::string name = (is_operator ? "" : "onnx_torch::") + std::string(function);
    jit::Value* result = jit::emitBuiltinCall(location_, *graph_, c10::Symbol::fromQualString(name), positional, named);
    if (jit::Node* tuple = result->node(); tuple->kind() == c10::prim::TupleConstruct) {
      results.assign(tuple->inputs().begin(), tuple->inputs().end());
      tuple->destroy();
    } else if (result->type()->kind() != c10::TypeKind::NoneType) {
      results.push_back(result);
    }
    for (auto node = before->next(); node != end; node = node->next()) facts_.learn(node);
    if (script) results = write_out(results.at(0)->node(), facts_, options_.keeps);
    for (jit::Value*& item : results) item = facts_.shared(item, item->node()->inputs());
  } else {
    const Script& callee = *script;
    const jit::MatchedSchema matched = jit::matchSchema(callee.schema, location_, *graph_, positional, named);
    for (auto node = before->next(); node != end; node = node->next()) facts_.learn(node);
    const auto run = [&](jit::Stack& stack) {
      jit::InterpreterState(code_for(callee, stack)).run(stack);
      if (stack.size() == 1 && stack[0].isTuple()) stack = stack[0].toTupleRef().elements().vec();
    };
    const auto known = callee.is_deterministic() ? facts_.evaluate(matched.inputs, run) : std::nullopt;
    if (known) {
      for (const IValue& value : *known) results.push_back(known_constant(value).graph);
    } else {
      results = insert_script(*graph_, callee, matched.inputs, facts_, options_.keeps);
      facts_.learn(matched.inputs, results, {}, run);
      // The body may go on changing the list that it returns, so only what follows may take the known value instead.
      for (jit::Value*& item : results) {
        const auto value = facts_.take_value(item);
        item = value ? known_constant(*value).graph : facts_.shared(item, matched.inputs);
      }
    }
  }
  for (auto node = before->next(); node != end; node = node->next()) stamp(node, location_);
  share_constants(before, end, results);
  Values values;
  for (jit::Value* result : results) values.push_back({result, {}});
  return values;
}

Value Translator::call(std::string_view function, std::vector<Arg> args) {
  Values results = call_all(function, std::move(args));
  if (results.size() != 1) {
    throw std::logic_error(std::string(function) + " has " + std::to_string(results.size()) + " results, not one");
  }
  return results[0];
}

}  // namespace onnxtorch
