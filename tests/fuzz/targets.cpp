#include "targets.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <onnx/onnx-ml.pb.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <variant>
#include <vector>

#include "import/tensor_proto.h"
#include "onnx_torch/model.h"
#include "runtime/pipeline.h"

namespace onnxtorch::fuzz {
namespace {

struct Case {
  onnx::ModelProto model;
  std::map<std::string, Data> feeds;
};

// What torch has the same type for; other tensors stay initializers.
bool can_be_fed(const onnx::TensorProto& tensor) {
  if (!is_element_type(tensor.data_type())) return false;
  const ElementType type = element_type(tensor);
  return type == ElementType::String || element_type_of(storage_dtype(type)) == type;
}

Data data_of(const onnx::TensorProto& tensor) {
  const ExternalData nowhere;
  Strings strings;
  const auto intern = [&](std::string_view text) {
    strings.values.emplace_back(text);
    return std::ssize(strings.values);
  };
  const at::Tensor read = TensorReader{nowhere, {}, intern}.read(tensor, nullptr).clone();  // in memory of its own
  if (element_type(tensor) != ElementType::String) return read;
  strings.sizes = read.sizes().vec();
  return strings;
}

std::optional<Case> case_of(const std::string& bytes) {
  Case result;
  if (!result.model.ParseFromString(bytes)) return {};
  auto& graph = *result.model.mutable_graph();
  for (const auto& input : graph.input()) {
    const auto tensor = std::ranges::find(graph.initializer(), input.name(), &onnx::TensorProto::name);
    if (tensor == graph.initializer().end() || !can_be_fed(*tensor)) continue;
    result.feeds[input.name()] = data_of(*tensor);
    graph.mutable_initializer()->erase(tensor);
  }
  return result;
}

bool has_name(const onnx::ModelProto& model, std::initializer_list<std::string_view> names) {
  const std::string text = model.SerializeAsString();
  return std::ranges::any_of(names, [&](std::string_view name) { return text.find(name) != std::string::npos; });
}

// A loop may take as long as its model says.
CompiledModel compiled(const Case& of, Options options = {}) {
  options.threads = 1;
  if (has_name(of.model, {"Loop"})) options.limits.max_iterations = 10'000;
  return Model::from_bytes(of.model.SerializeAsString()).compile(options);
}

// Whatever the package refuses is an outcome; other exceptions are not.
Outcome outcome_of(Outcome where_refused, const std::function<Outcome()>& work) {
  try {
    return work();
  } catch (const Error&) {
    return where_refused;
  }
}

Outcome prepare(const std::string& bytes) {
  onnx::ModelProto model;
  if (!model.ParseFromString(bytes)) return Outcome::NoModel;
  return outcome_of(Outcome::Refused, [&] {
    Model::from_bytes(bytes).compile({.threads = 1});
    return Outcome::Prepared;
  });
}

Outcome run(const std::string& bytes) {
  return outcome_of(Outcome::Refused, [&] {
    const std::optional<Case> of = case_of(bytes);
    if (!of) return Outcome::NoModel;
    const CompiledModel model = compiled(*of);
    return outcome_of(Outcome::Failed, [&] {
      model.run(of->feeds);
      return Outcome::Ran;
    });
  });
}

// --- Differences -----------------------------------------------------------------------------------------------------

bool draws_numbers(const onnx::ModelProto& model) {
  return has_name(model, {"Random", "Bernoulli", "Multinomial", "Dropout"});
}

// ATen's fused attention, which the plain graph has, takes a row whose scores are all NaN or masked for one that is
// masked.
bool takes_nan_for_masked(const Case& of) {
  const auto is_attention = [](const onnx::NodeProto& node) { return node.op_type().ends_with("Attention"); };
  const auto has_nan = [](const auto& feed) {
    const auto* const tensor = std::get_if<at::Tensor>(&feed.second.value());
    return tensor && tensor->is_floating_point() && tensor->isnan().any().template item<bool>();
  };
  return std::ranges::any_of(of.model.graph().node(), is_attention) && std::ranges::any_of(of.feeds, has_nan);
}

// As far as sums in another order may differ. A NaN is one in both; what is infinite in one may be large in the other.
bool alike(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (!a.is_floating_point()) return at::equal(a.contiguous(), b.contiguous());
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble), finite = at::isfinite(x).logical_and(at::isfinite(y));
  if (!at::equal(at::isnan(x), at::isnan(y))) return false;
  const at::Tensor size = at::where(finite, x.abs(), 0);
  const double allowed = a.numel() > 0 ? 1e-2 * size.max().item<double>() + 1e-4 : 0;
  return at::where(finite, (x - y).abs().le(allowed), true).all().item<bool>();
}

bool alike(const Strings& a, const Strings& b) { return a.values == b.values && a.sizes == b.sizes; }

bool alike(const Data& a, const Data& b);

bool alike(const Sequence& a, const Sequence& b) {
  return std::ranges::equal(a.items, b.items, [](const Data& x, const Data& y) { return alike(x, y); });
}

bool alike(std::monostate, std::monostate) { return true; }

template <typename... Kinds>
bool alike(const std::variant<Kinds...>& a, const std::variant<Kinds...>& b);

bool alike(const Map& a, const Map& b) { return alike(a.keys, b.keys) && alike(a.values, b.values); }

// Of the same kind, and alike as such.
template <typename... Kinds>
bool alike(const std::variant<Kinds...>& a, const std::variant<Kinds...>& b) {
  const auto same = [&](const auto& x) { return alike(x, std::get<std::decay_t<decltype(x)>>(b)); };
  return a.index() == b.index() && std::visit(same, a);
}

bool alike(const Data& a, const Data& b) { return alike(a.value(), b.value()); }

void compare(const Outputs& plain, const Case& of, const Options& options, const std::string& how) {
  try {
    const Outputs other = compiled(of, options).run(of.feeds);
    for (size_t i = 0; i < plain.size(); ++i)
      if (!alike(plain[i], other[i])) throw std::logic_error("output " + std::to_string(i) + " differs " + how);
  } catch (const Error& error) {
    throw std::logic_error("fails " + how + ": " + error.what());
  }
}

Outcome differential(const std::string& bytes) {
  return outcome_of(Outcome::Refused, [&] {
    const std::optional<Case> of = case_of(bytes);
    if (!of) return Outcome::NoModel;
    const CompiledModel plain = compiled(*of, {.optimize = false});
    std::optional<Outputs> results;
    try {
      results = plain.run(of->feeds);
    } catch (const Error&) {
      return Outcome::Failed;
    }
    if (draws_numbers(of->model) || takes_nan_for_masked(*of)) return Outcome::Ran;
    compare(*results, *of, {}, "where it is optimized");
    const std::vector<Pass> passes = passes_for(at::kCPU);
    const std::string left_out = passes[std::hash<std::string>()(bytes) % passes.size()].name;
    compare(*results, *of, {.disabled_passes = {left_out}}, "without the pass " + left_out);
    return Outcome::Ran;
  });
}

// What is no image is an empty one.
Outcome image(const std::string& bytes) {
  static const auto decoder = c10::Dispatcher::singleton()
                                  .findSchemaOrThrow("onnx_torch::image_decoder", "")
                                  .typed<at::Tensor(const at::Tensor&, std::string_view)>();
  const at::Tensor file = at::empty({std::ssize(bytes)}, at::kByte);  // in memory of its own
  std::ranges::copy(bytes, file.mutable_data_ptr<uint8_t>());
  return decoder.call(file, "RGB").numel() == 0 ? Outcome::Refused : Outcome::Ran;
}

}  // namespace

const std::map<std::string_view, Target*>& targets() {
  static const std::map<std::string_view, Target*> all{
      {"prepare", prepare}, {"run", run}, {"differential", differential}, {"image", image}};
  return all;
}

}  // namespace onnxtorch::fuzz
