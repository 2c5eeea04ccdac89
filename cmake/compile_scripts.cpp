// Compiles the functions of src/ops/scripts by TorchScript's front end, and writes their graphs into one C++ source,
// for src/translate/compiled_scripts.h: compile_scripts OUT.cpp [SCRIPT.py ...]
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/csrc/jit/frontend/parser.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/library.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

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

struct Function {
  std::string text, file;
  size_t lines_before;  // in the file
  bool kept;            // marked by @kept: calls of it may stay as they are, for passes to find
};

// The functions of a file, by their names. What follows one begins at the margin, too.
void read(const std::filesystem::path& path, std::map<std::string, Function>& functions) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  static const std::regex kHead("(^|\n)(@kept\n)?def (\\w+)"), kNext("\n(def |#|@)");
  for (std::sregex_iterator head(text.begin(), text.end(), kHead), none; head != none; ++head) {
    const auto begin = (*head)[3].first - 4;  // after "def "
    std::smatch next;
    const auto end = std::regex_search(begin, text.end(), next, kNext) ? next[0].first + 1 : text.end();
    const auto lines = static_cast<size_t>(std::count(text.begin(), begin, '\n'));
    const bool is_new =
        functions.emplace((*head)[3], Function{{begin, end}, path.filename(), lines, (*head)[2].matched}).second;
    if (!is_new) throw std::runtime_error("two scripts are called " + (*head)[3].str());
  }
}

// The script as an operator, with a result for each of a tuple's.
c10::FunctionSchema operator_schema(const c10::FunctionSchema& script) {
  std::vector<c10::Argument> results = script.returns();
  if (const auto tuple = results[0].type()->cast<c10::TupleType>()) {
    results.clear();
    for (const c10::TypePtr& type : tuple->elements()) results.emplace_back("", type);
  }
  return {"onnx_torch::" + script.name(), "", script.arguments(), std::move(results)};
}

class Compiler : public jit::Resolver, public std::enable_shared_from_this<Compiler> {
 public:
  explicit Compiler(const std::map<std::string, Function>& functions) : functions_(functions) {}

  jit::GraphFunction* compiled(const std::string& name) {
    const auto found = functions_.find(name);
    if (found == functions_.end()) return nullptr;
    auto& unit = units_[name];
    if (!unit) {
      const Function& function = found->second;
      jit::Parser parser(std::make_shared<jit::Source>(function.text, function.file, function.lines_before));
      unit = std::make_shared<jit::CompilationUnit>();
      unit->define({}, {}, {}, {jit::Def(parser.parseFunction(/*is_method=*/false))}, {shared_from_this()}, nullptr);
    }
    return static_cast<jit::GraphFunction*>(unit->find_function(name));
  }

  std::shared_ptr<jit::SugaredValue> resolveValue(const std::string& name, jit::GraphFunction&,
                                                  const jit::SourceRange&) override {
    if (name == "torch") return std::make_shared<TorchModule>();
    jit::GraphFunction* const function = compiled(name);
    if (!function) return nullptr;
    if (!functions_.at(name).kept) return std::make_shared<jit::FunctionValue>(function);
    declare(name, function->getSchema());
    return std::make_shared<jit::BuiltinFunction>(c10::Symbol::fromQualString("onnx_torch::" + name), std::nullopt);
  }

 private:
  // Declares a kept script's operator to TorchScript, once.
  void declare(const std::string& name, const c10::FunctionSchema& script) {
    auto& declared = operators_[name];
    if (declared) return;
    declared.emplace(torch::Library::FRAGMENT, "onnx_torch", std::nullopt, __FILE__, __LINE__);
    declared->def(operator_schema(script));
  }

  const std::map<std::string, Function>& functions_;
  std::map<std::string, std::shared_ptr<jit::CompilationUnit>> units_;
  std::map<std::string, std::optional<torch::Library>> operators_;
};

// parseIR reads no constants that are tuples.
void construct_constant_tuples(jit::Block& block) {
  for (jit::Node* node : block.nodes()) {
    for (jit::Block* inner : node->blocks()) construct_constant_tuples(*inner);
    if (node->kind() != c10::prim::Constant || node->output()->type()->kind() != c10::TypeKind::TupleType) continue;
    const jit::WithInsertPoint at(node);
    std::vector<jit::Value*> elements;
    for (const c10::IValue& element : jit::toIValue(node->output())->toTupleRef().elements())
      elements.push_back(block.owningGraph()->insertConstant(element));
    jit::Node* const tuple = block.owningGraph()->insertNode(block.owningGraph()->createTuple(elements));
    tuple->output()->setType(node->output()->type());
    node->output()->replaceAllUsesWith(tuple->output());
  }
}

// As parseIR reads it: with all digits, a point in each number that is not an integer's, and without the equals sign in
// front of nodes that have no results.
std::string text_of(const jit::Graph& graph) {
  std::ostringstream text;
  text << std::setprecision(std::numeric_limits<double>::max_digits10);
  graph.print(text, /*print_source_locations=*/false);
  static const std::regex kNoResults("\n( +) = "), kNoPoint("(: float = prim::Constant\\[value=-?\\d+)\\]");
  return std::regex_replace(std::regex_replace(text.str(), kNoResults, "\n$1"), kNoPoint, "$1.]");
}

// Whether two graphs are the same, but for the names of their values.
class Comparison {
 public:
  bool are_equal(const jit::Block& a, const jit::Block& b) {
    return is_pair(a.inputs(), b.inputs()) &&
           std::ranges::equal(a.nodes(), b.nodes(),
                              [this](const jit::Node* x, const jit::Node* y) { return are_equal(x, y); }) &&
           are_known(a.outputs(), b.outputs());
  }

 private:
  bool are_equal(const jit::Node* a, const jit::Node* b) {
    if (a->kind() != b->kind() || !are_known(a->inputs(), b->inputs())) return false;
    if (a->kind() == c10::prim::Constant && *jit::toIValue(a->output()) != *jit::toIValue(b->output())) return false;
    const auto alike = [this](const jit::Block* x, const jit::Block* y) { return are_equal(*x, *y); };
    return std::ranges::equal(a->blocks(), b->blocks(), alike) && is_pair(a->outputs(), b->outputs());
  }

  bool is_pair(at::ArrayRef<const jit::Value*> a, at::ArrayRef<const jit::Value*> b) {
    return std::ranges::equal(a, b, [this](const jit::Value* x, const jit::Value* y) {
      pairs_[x] = y;
      return *x->type() == *y->type();
    });
  }

  bool are_known(at::ArrayRef<const jit::Value*> a, at::ArrayRef<const jit::Value*> b) const {
    return std::ranges::equal(a, b, [this](const jit::Value* x, const jit::Value* y) { return pairs_.at(x) == y; });
  }

  std::map<const jit::Value*, const jit::Value*> pairs_;
};

// The graph's text. Throws where it would be read as something else.
std::string checked_text(const jit::Graph& graph) {
  jit::Graph read;
  jit::parseIR(text_of(graph), &read);
  std::string text = text_of(read);
  if (!Comparison().are_equal(*graph.block(), *read.block()))
    throw std::runtime_error("not the same is read:\n" + text);
  return text;
}

std::string checked_text(const c10::FunctionSchema& schema) {
  std::ostringstream text;
  text << schema;
  if (jit::parseSchema(text.str()) != schema) throw std::runtime_error("not the same is read: " + text.str());
  return text.str();
}

std::string row(const std::string& name, jit::GraphFunction& function, bool kept) {
  jit::Inline(*function.graph());
  construct_constant_tuples(*function.graph()->block());
  jit::EliminateDeadCode(function.graph());  // the functions that were called, and the tuples
  const c10::FunctionSchema& schema = function.getSchema();
  std::ostringstream row;
  row << "CompiledScript{\"" << name << "\"sv, R\"script(" << checked_text(kept ? operator_schema(schema) : schema)
      << ")script\"sv, R\"script(" << checked_text(*function.graph()) << ")script\"sv, " << std::boolalpha << kept
      << "},\n";
  return row.str();
}

std::string table(const std::map<std::string, Function>& functions) {
  const auto compiler = std::make_shared<Compiler>(functions);
  std::string rows;
  for (const auto& [name, function] : functions) {
    try {
      rows += row(name, *compiler->compiled(name), function.kept);
    } catch (const std::exception& error) {
      throw std::runtime_error(function.file + ", " + name + ": " + error.what());
    }
  }
  return R"(// Generated by cmake/compile_scripts.cpp.
#include "translate/compiled_scripts.h"

#include <array>

namespace onnxtorch {

std::span<const CompiledScript> compiled_scripts() {
  using namespace std::string_view_literals;
  static constexpr std::array<CompiledScript, )" +
         std::to_string(functions.size()) + "> kScripts{\n" + rows + R"(};
  return kScripts;
}

}  // namespace onnxtorch
)";
}

}  // namespace
}  // namespace onnxtorch

int main(int count, char** arguments) {
  try {
    std::map<std::string, onnxtorch::Function> functions;
    for (int i = 2; i < count; ++i) onnxtorch::read(arguments[i], functions);
    std::ofstream(arguments[1]) << onnxtorch::table(functions);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
