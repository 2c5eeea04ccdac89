#include "translate/scripts.h"

#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "base/fork_safe.h"
#include "graph/loops.h"
#include "graph/symbols.h"
#include "graph/writes.h"
#include "translate/compiled_scripts.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

// Gives the graph as it is run while translating, with its loops guarded: what the model says about how often a loop
// goes round is not to be trusted.
std::shared_ptr<jit::Graph> guarded(const std::shared_ptr<jit::Graph>& graph) {
  if (loops_of(graph).empty()) return graph;
  std::shared_ptr<jit::Graph> copy = graph->copy();
  for (jit::Node* loop : loops_of(copy)) {
    jit::Block* body = loop->blocks()[0];
    body->prependNode(copy->create(c10::Symbol::fromQualString(kCheckRun), {body->inputs()[0]}, 0));
  }
  keep_loops_apart(copy);
  return copy;
}

// Runs the script of the operator's name.
void run_script(const c10::OperatorHandle& op, jit::Stack* stack) {
  const Script& script = *kept_script(c10::Symbol::fromQualString(op.schema().name()));
  const size_t count = op.schema().arguments().size();
  jit::Stack own(std::make_move_iterator(stack->end() - static_cast<std::ptrdiff_t>(count)),
                 std::make_move_iterator(stack->end()));
  jit::drop(*stack, count);
  jit::InterpreterState(code_for(script, own)).run(own);
  const bool several = own.size() == 1 && own[0].isTuple();
  const jit::Stack results = several ? own[0].toTupleRef().elements().vec() : own;
  stack->insert(stack->end(), results.begin(), results.end());
}

const CompiledScript* compiled(std::string_view name) {
  const auto scripts = compiled_scripts();
  const auto found = std::ranges::lower_bound(scripts, name, {}, &CompiledScript::name);
  return found == scripts.end() || found->name != name ? nullptr : &*found;
}

// Tells whether an operator is a kept script.
bool is_kept(c10::Symbol kind) {
  static const auto kOwn = c10::Symbol::fromQualString("namespaces::onnx_torch");
  const CompiledScript* const script = kind.ns() == kOwn ? compiled(kind.toUnqualString()) : nullptr;
  return script && script->kept;
}

std::shared_ptr<jit::Graph> read_graph(std::string_view text) {
  auto graph = std::make_shared<jit::Graph>();
  jit::parseIR(std::string(text), graph.get());
  return graph;
}

// Tells whether a graph calls nothing that gives another result each time.
bool calls_nothing_random(const jit::Block& block) {
  return std::ranges::all_of(block.nodes(), [](const jit::Node* node) {
    if (node->isNondeterministic()) return false;
    const jit::Operator* const op = node->maybeOperator();
    const bool is_random =
        op && op->isC10Op() &&
        c10::Dispatcher::singleton().findOp(op->schema().operator_name())->hasTag(at::Tag::nondeterministic_seeded);
    return !is_random &&
           std::ranges::all_of(node->blocks(), [](const jit::Block* inner) { return calls_nothing_random(*inner); });
  });
}

class Library {
 public:
  const Script& find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return find_in(name);
  }

  // Declares the operators of the kept scripts that a graph calls.
  void declare_called(const jit::Block& block) {
    const std::lock_guard lock(mutex_);
    declare_all(block);
  }

 private:
  const Script& find_in(const std::string& name) {
    if (const auto known = scripts_.find(name); known != scripts_.end()) return known->second;
    const CompiledScript* const script = compiled(name);
    if (!script) throw std::logic_error("there is no script called " + name);
    if (script->kept) declare(*script);
    const std::string of_sizes = name + "_of_sizes";
    const Script* const without_steps = compiled(of_sizes) ? &find_in(of_sizes) : nullptr;
    return scripts_.try_emplace(name, *script, without_steps).first->second;
  }

  // Declares a kept script's operator to TorchScript, once.
  void declare(const CompiledScript& script) {
    auto& declared = operators_[script.name];
    if (declared) return;
    c10::FunctionSchema schema = jit::parseSchema(std::string(script.schema));
    schema.setAliasAnalysis(c10::AliasAnalysisKind::FROM_SCHEMA);
    declared.emplace(torch::Library::FRAGMENT, "onnx_torch", std::nullopt, __FILE__, __LINE__);
    declared->def(std::move(schema), torch::CppFunction::makeFromBoxedFunction<run_script>());
  }

  void declare_all(const jit::Block& block) {
    for (const jit::Node* node : block.nodes()) {
      if (is_kept(node->kind())) declare(*compiled(node->kind().toUnqualString()));
      for (const jit::Block* inner : node->blocks()) declare_all(*inner);
    }
  }

  ForkSafeMutex mutex_;
  std::map<std::string, Script> scripts_;
  std::map<std::string_view, std::optional<torch::Library>> operators_;
};

Library& library() {
  static const auto library = std::make_shared<Library>();
  return *library;
}

}  // namespace

Script::Script(const CompiledScript& compiled, const Script* without_steps, std::shared_ptr<jit::Graph> graph)
    : schema(jit::parseSchema(std::string(compiled.schema))),
      kept(compiled.kept),
      of_sizes(without_steps),
      text_(compiled.graph),
      given_(std::move(graph)) {}

const Script::Body& Script::body() const {
  read_([this] {
    auto graph = given_ ? given_ : read_graph(text_);
    library().declare_called(*graph->block());
    const bool is_deterministic = calls_nothing_random(*graph->block());
    const bool writes = !writes_to_own_lists(*graph->block());
    body_ = Body{std::move(graph), is_deterministic, writes};
  });
  return *body_;
}

const jit::Code& Script::code() const {
  compiled_([this] { code_.emplace(guarded(graph()), schema.name()); });
  return *code_;
}

const jit::Code& code_for(const Script& script, const jit::Stack& stack) {
  const bool has_no_numbers = std::ranges::any_of(stack, [](const c10::IValue& value) {
    return value.isTensor() && value.toTensor().defined() && value.toTensor().is_meta();
  });
  return script.of_sizes && has_no_numbers ? script.of_sizes->code() : script.code();
}

const Script* kept_script(c10::Symbol kind) { return is_kept(kind) ? &find_script(kind.toUnqualString()) : nullptr; }

const Script& find_script(const std::string& name) { return library().find(name); }

}  // namespace onnxtorch
