// The public interface of translators, on top of the library's own.
#include "onnx_torch/library.h"

#include <dlfcn.h>
#include <onnx/onnx-ml.pb.h>

#include <algorithm>
#include <stdexcept>

#include "runtime/torch_tensor.h"
#include "translate/user_operators.h"

namespace onnxtorch {
namespace translator {

struct ValueAccess {
  static Value wrap(const onnxtorch::Value& v) { return {v.graph, v.type}; }
  static onnxtorch::Value unwrap(const Value& v) { return {static_cast<torch::jit::Value*>(v.graph_), v.type_}; }
};

}  // namespace translator

namespace {

namespace pub = translator;

pub::Value wrap(const Value& v) { return pub::ValueAccess::wrap(v); }
Value unwrap(const pub::Value& v) { return pub::ValueAccess::unwrap(v); }

pub::Values wrap(const Values& values) {
  pub::Values result;
  std::ranges::transform(values, std::back_inserter(result), pub::ValueAccess::wrap);
  return result;
}

Values unwrap(const pub::Values& values) {
  Values result;
  std::ranges::transform(values, std::back_inserter(result), pub::ValueAccess::unwrap);
  return result;
}

struct Unwrap {
  Arg operator()(const pub::Value& v) const { return unwrap(v); }
  Arg operator()(const pub::Values& list) const { return unwrap(list); }
  template <typename T>
  Arg operator()(const T& constant) const {
    return constant;
  }
};

Arg unwrap(const pub::Arg& arg) {
  Arg result = std::visit(Unwrap{}, arg.data);
  result.name = arg.name;
  return result;
}

// Makes a value of an argument by itself; none is an absent one.
Value value_of(Translator& t, const pub::Arg& arg) {
  if (std::holds_alternative<None>(arg.data)) return {};
  const auto* value = std::get_if<pub::Value>(&arg.data);
  return value ? unwrap(*value) : t.scalar(unwrap(arg));
}

Values values_of(Translator& t, const std::vector<pub::Arg>& args) {
  Values result;
  for (const pub::Arg& arg : args) result.push_back(value_of(t, arg));
  return result;
}

class PublicGraph final : public pub::Graph {
 public:
  explicit PublicGraph(Translator& t) : t_(t) {}

  pub::Values call_all(std::string_view name, const std::vector<pub::Arg>& args) override {
    if (name.find("::") == std::string_view::npos) {
      throw std::invalid_argument("\"" + std::string(name) +
                                  "\" is not the name of a torch operator; write \"namespace::name\"");
    }
    std::vector<Arg> unwrapped;
    for (const pub::Arg& arg : args) unwrapped.push_back(unwrap(arg));
    pub::Values results;
    for (const Value& result : t_.call_all(name, std::move(unwrapped))) {
      const auto dtype = t_.known_dtype(result);
      results.push_back(wrap(dtype ? result.as(element_type_of(*dtype)) : result));
    }
    return results;
  }

  pub::Value call(std::string_view name, const std::vector<pub::Arg>& args) override {
    const pub::Values results = call_all(name, args);
    if (results.size() == 1) return results[0];
    throw std::invalid_argument(std::string(name) + " has " + std::to_string(results.size()) + " results, not one");
  }

  pub::Value constant(const at::Tensor& tensor) override {
    const Fed fed = fed_from_tensor(tensor, ElementType::Undefined, "constant");
    return wrap(t_.constant(fed.value.toTensor(), fed.type.element));
  }

  pub::Value device() override { return wrap(t_.device()); }

  pub::Value texts(const pub::Value& strings) override {
    return wrap(t_.call("onnx_torch::texts", {t_.string_pool(), unwrap(strings)}));
  }

  pub::Value strings(const pub::Arg& texts, const pub::Arg& sizes) override {
    const auto* constant = std::get_if<std::vector<std::string>>(&texts.data);
    const Value strings = constant ? t_.strings(*constant)
                                   : t_.call("onnx_torch::strings", {t_.string_pool(), unwrap(texts), t_.device()});
    return wrap(t_.call("aten::reshape", {strings, unwrap(sizes)}).as(ElementType::String));
  }

  pub::Values branch(const pub::Value& condition, const std::function<pub::Values()>& then_branch,
                     const std::function<pub::Values()>& else_branch) override {
    return wrap(
        t_.branch(unwrap(condition), [&] { return unwrap(then_branch()); }, [&] { return unwrap(else_branch()); }));
  }

  pub::Values loop(const pub::Arg& trip_count, const pub::Arg& condition, const std::vector<pub::Arg>& carried,
                   const std::function<Step(const pub::Value&, const pub::Values&)>& body) override {
    return wrap(t_.loop(value_of(t_, trip_count), value_of(t_, condition), values_of(t_, carried),
                        [&](const Value& iteration, const Values& now) -> Translator::Step {
                          const Step step = body(wrap(iteration), wrap(now));
                          return {unwrap(step.condition), unwrap(step.carried)};
                        }));
  }

  std::optional<std::vector<int64_t>> known_ints(const pub::Value& v) const override {
    return t_.known_ints(unwrap(v));
  }
  std::optional<std::vector<int64_t>> known_shape(const pub::Value& v) const override {
    return v.absent() ? std::nullopt : t_.known_shape(unwrap(v));
  }

 private:
  Translator& t_;
};

class PublicNode final : public pub::Node {
 public:
  PublicNode(Translator& t, const NodeView& n) : t_(t), n_(n) {}

  size_t input_count() const override { return n_.input_count(); }
  bool has(size_t i) const override { return n_.has(i); }
  pub::Value input(size_t i) const override { return wrap(n_.tensor(i)); }
  pub::Value ints(size_t i) const override { return wrap(n_.ints(i)); }
  pub::Value integer(size_t i) const override { return wrap(n_.integer(i)); }
  pub::Value number(size_t i) const override { return wrap(n_.number(i)); }

  size_t output_count() const override { return n_.output_count(); }
  bool wants(size_t i) const override { return n_.wants(i); }

  bool has_attribute(std::string_view name) const override { return n_.has_attribute(name); }
  int64_t attr_int(std::string_view name) const override { return n_.attr_int(name); }
  double attr_float(std::string_view name) const override { return n_.attr_float(name); }
  std::string attr_string(std::string_view name) const override { return n_.attr_string(name); }
  std::vector<int64_t> attr_ints(std::string_view name) const override { return n_.attr_ints(name); }
  std::vector<double> attr_floats(std::string_view name) const override { return n_.attr_floats(name); }
  std::vector<std::string> attr_strings(std::string_view name) const override { return n_.attr_strings(name); }
  pub::Value attr_tensor(std::string_view name) const override { return wrap(n_.attr_tensor(name)); }

  pub::Values subgraph(std::string_view attribute, const std::vector<pub::Arg>& inputs) const override {
    return wrap(t_.subgraph(n_.attr_graph(attribute), values_of(t_, inputs)));
  }
  size_t subgraph_output_count(std::string_view attribute) const override {
    return static_cast<size_t>(n_.attr_graph(attribute).output_size());
  }

  const NodeLabel& label() const override { return n_.label(); }
  void fail(const std::string& what) const override { n_.fail(what); }
  void unsupported(const std::string& what) const override { n_.unsupported(what); }

 private:
  Translator& t_;
  const NodeView& n_;
};

class PublicTable final : public pub::OperatorTable {
 public:
  void add(const std::string& domain, const std::string& op_type, int64_t since_version,
           pub::Function function) override {
    const auto translate = [function = std::move(function)](Translator& t, const NodeView& n) {
      PublicGraph graph(t);
      Values outputs;
      for (const pub::Value& result : function(graph, PublicNode(t, n))) {
        const Value output = unwrap(result);
        outputs.push_back(output.absent() || output.type.known() ? output : as_output(t, output));
      }
      return outputs;
    };
    register_operator(domain, op_type, since_version, translate);
  }
};

}  // namespace

translator::OperatorTable& operators() {
  static PublicTable table;
  return table;
}

void load_library(const std::filesystem::path& file) {
  constexpr const char* kEntry = "onnx_torch_operators_2";
  // A name without a slash would be looked for where the system's libraries are.
  const std::filesystem::path path = std::filesystem::exists(file) ? std::filesystem::absolute(file) : file;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw InputError(std::string("cannot load the library: ") + dlerror());
  const auto entry = reinterpret_cast<void (*)(translator::OperatorTable&)>(dlsym(library, kEntry));
  if (!entry) {
    throw InputError("the library " + file.string() +
                     " has no operators for this release of onnx_torch, which looks for " + kEntry +
                     "; build it with this release's onnx_torch/translator.h and give it ONNX_TORCH_OPERATORS");
  }
  entry(operators());
}

}  // namespace onnxtorch
