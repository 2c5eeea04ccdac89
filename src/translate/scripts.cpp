#include "translate/scripts.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/parser.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/passes/inliner.h>
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
#include "translate/script_files.h"

namespace onnxtorch {
namespace {

namespace jit = torch::jit;

const std::map<std::string, c10::ScalarType> kDtypes{{"float32", c10::kFloat},
                                                     {"float64", c10::kDouble},
                                                     {"float16", c10::kHalf},
                                                     {"bfloat16", c10::kBFloat16},
                                                     {"int8", c10::kChar},
                                                     {"int16", c10::kShort},
                                                     {"int32", c10::kInt},
                                                     {"int64", c10::kLong},
                                                     {"uint8", c10::kByte},
                                                     {"bool", c10::kBool},
                                                     {"complex64", c10::kComplexFloat},
                                                     {"complex128", c10::kComplexDouble}};

// torch.ops in a script: torch.ops.onnx_torch.name is the operator onnx_torch::name.
struct OpsModule : jit::SugaredValue {
  std::string kind() const override { return "module"; }
  std::shared_ptr<jit::SugaredValue> attr(const jit::SourceRange&, jit::GraphFunction&,
                                          const std::string& field) override {
    return std::make_shared<jit::BuiltinModule>(field);
  }
};

// torch in a script: its functions are ATen's operators, its dtypes integers.
struct TorchModule : jit::BuiltinModule {
  TorchModule() : BuiltinModule("aten") {}
  std::shared_ptr<jit::SugaredValue> attr(const jit::SourceRange& loc, jit::GraphFunction& m,
                                          const std::string& field) override {
    if (field == "ops") return std::make_shared<OpsModule>();
    if (const auto dtype = kDtypes.find(field); dtype != kDtypes.end()) {
      return std::make_shared<jit::SimpleValue>(m.graph()->insertConstant(static_cast<int64_t>(dtype->second)));
    }
    return BuiltinModule::attr(loc, m, field);
  }
};

// The graph as it is run while translating: what the model says about how often a loop goes round is not to be trusted.
std::shared_ptr<jit::Graph> guarded(const std::shared_ptr<jit::Graph>& graph) {
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

// The script as an operator, with a result for each of a tuple's.
c10::FunctionSchema operator_schema(const std::string& name, const c10::FunctionSchema& script) {
  std::vector<c10::Argument> results = script.returns();
  if (const auto tuple = results[0].type()->cast<c10::TupleType>()) {
    results.clear();
    for (const c10::TypePtr& type : tuple->elements()) results.emplace_back("", type);
  }
  c10::FunctionSchema schema("onnx_torch::" + name, "", script.arguments(), std::move(results));
  schema.setAliasAnalysis(c10::AliasAnalysisKind::FROM_SCHEMA);
  return schema;
}

class Library : public jit::Resolver, public std::enable_shared_from_this<Library> {
 public:
  const Script& find(const std::string& name) {
    if (const auto known = scripts_.find(name); known != scripts_.end()) return known->second;
    jit::GraphFunction* function = compiled(name);
    if (!function) throw std::logic_error("there is no script called " + name);
    if (is_kept(name)) declare(name);
    jit::Inline(*function->graph());
    const jit::Block& body = *function->graph()->block();
    const std::string of_sizes = name + "_of_sizes";
    return scripts_
        .emplace(name, Script{function, jit::Code(guarded(function->graph()), name), is_deterministic(body),
                              may_write(body), is_kept(name), source_of(of_sizes) ? &find(of_sizes) : nullptr})
        .first->second;
  }

  std::shared_ptr<jit::SugaredValue> resolveValue(const std::string& name, jit::GraphFunction&,
                                                  const jit::SourceRange&) override {
    if (name == "torch") return std::make_shared<TorchModule>();
    if (is_kept(name)) {
      declare(name);
      return std::make_shared<jit::BuiltinFunction>(c10::Symbol::fromQualString("onnx_torch::" + name), std::nullopt);
    }
    jit::GraphFunction* function = compiled(name);
    return function ? std::make_shared<jit::FunctionValue>(function) : nullptr;
  }

  static bool is_kept(const std::string& name) {
    const ScriptSource* const source = source_of(name);
    return source && source->kept;
  }

 private:
  static const ScriptSource* source_of(const std::string& name) {
    const auto sources = script_sources();
    const auto found = std::ranges::lower_bound(sources, name, {}, &ScriptSource::name);
    return found == sources.end() || found->name != name ? nullptr : &*found;
  }

  // Declares a kept script's operator to TorchScript, once.
  void declare(const std::string& name) {
    auto& declared = operators_[name];
    if (declared) return;
    declared.emplace(torch::Library::FRAGMENT, "onnx_torch", std::nullopt, __FILE__, __LINE__);
    declared->def(operator_schema(name, compiled(name)->getSchema()),
                  torch::CppFunction::makeFromBoxedFunction<run_script>());
  }

  jit::GraphFunction* compiled(const std::string& name) {
    const ScriptSource* const found = source_of(name);
    if (!found) return nullptr;
    // Each in a unit of its own, so that one that does not compile leaves nothing behind.
    auto& unit = units_[name];
    if (!unit) {
      jit::Parser parser(
          std::make_shared<jit::Source>(std::string(found->source), std::string(found->file), found->lines_before));
      const auto fresh = std::make_shared<jit::CompilationUnit>();
      fresh->define({}, {}, {}, {jit::Def(parser.parseFunction(/*is_method=*/false))}, {shared_from_this()}, nullptr);
      unit = fresh;
    }
    return static_cast<jit::GraphFunction*>(unit->find_function(name));
  }

  std::map<std::string, Script> scripts_;
  std::map<std::string, std::shared_ptr<jit::CompilationUnit>> units_;
  std::map<std::string, std::optional<torch::Library>> operators_;
};

}  // namespace

const jit::Code& code_for(const Script& script, const jit::Stack& stack) {
  const bool has_no_numbers = std::ranges::any_of(stack, [](const c10::IValue& value) {
    return value.isTensor() && value.toTensor().defined() && value.toTensor().is_meta();
  });
  return script.of_sizes && has_no_numbers ? script.of_sizes->code : script.code;
}

bool is_deterministic(const jit::Block& block) {
  for (const jit::Node* node : block.nodes()) {
    if (node->isNondeterministic()) return false;
    const jit::Operator* op = node->maybeOperator();
    if (op && op->isC10Op() &&
        c10::Dispatcher::singleton().findOp(op->schema().operator_name())->hasTag(at::Tag::nondeterministic_seeded)) {
      return false;
    }
    for (const jit::Block* inner : node->blocks()) {
      if (!is_deterministic(*inner)) return false;
    }
  }
  return true;
}

const Script* kept_script(c10::Symbol kind) {
  static const auto own = c10::Symbol::fromQualString("namespaces::onnx_torch");
  if (kind.ns() != own) return nullptr;
  const std::string name = kind.toUnqualString();
  return Library::is_kept(name) ? &find_script(name) : nullptr;
}

const Script& find_script(const std::string& name) {
  static ForkSafeMutex mutex;
  static const auto library = std::make_shared<Library>();
  const std::lock_guard lock(mutex);
  return library->find(name);
}

}  // namespace onnxtorch
