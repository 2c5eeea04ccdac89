#include "targets.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <stdexcept>
#include <variant>
#include <vector>

#include "agree.h"
#include "base/run_guard.h"
#include "case.h"
#include "onnx_torch/model.h"
#include "runtime/pipeline.h"

namespace onnxtorch::fuzz {
namespace {

// For each run of a model that is run many times, and whose results are compared: pages take the system's time.
constexpr double kMemoryOfMany = kMemory / 4;

CompiledModel compiled(const Case& of, Options options = {}) {
  options.threads = 1;
  options.limits.constant_bytes = kMemory;
  options.limits.prepare_seconds = kPrepareSeconds;
  if (names_one_of(of.model, {"Loop"})) options.limits.max_iterations = 10'000;
  return Model::from_bytes(of.model.SerializeAsString()).compile(options);
}

Outputs results(const CompiledModel& model, const Case& of, double memory = kMemory) {
  const MemoryScope scope(memory);
  return model.run(of.feeds);
}

Outcome prepare(const std::string& bytes) {
  onnx::ModelProto model;
  if (!model.ParseFromString(bytes)) return Outcome::NoModel;
  return outcome_of(Outcome::Refused, [&] {
    Model::from_bytes(bytes).compile(
        {.threads = 1, .limits = {.prepare_seconds = kPrepareSeconds, .constant_bytes = kMemory}});
    return Outcome::Prepared;
  });
}

Outcome run(const std::string& bytes) {
  return outcome_of(Outcome::Refused, [&] {
    const std::optional<Case> of = case_of(bytes);
    if (!of) return Outcome::NoModel;
    const CompiledModel model = compiled(*of);
    return outcome_of(Outcome::Failed, [&] {
      results(model, *of);
      return Outcome::Ran;
    });
  });
}

// --- Differences -----------------------------------------------------------------------------------------------------

void compare(const Outputs& plain, const Case& of, const Options& options, const std::string& how) {
  try {
    const Outputs other = results(compiled(of, options), of);
    for (size_t i = 0; i < plain.size(); ++i)
      if (!agree(plain[i], other[i], alike)) throw std::logic_error("output " + std::to_string(i) + " differs " + how);
  } catch (const Error& error) {
    throw std::logic_error("fails " + how + ": " + error.what());
  }
}

Outcome differential(const std::string& bytes) {
  return outcome_of(Outcome::Refused, [&] {
    const std::optional<Case> of = case_of(bytes);
    if (!of) return Outcome::NoModel;
    const CompiledModel plain = compiled(*of, {.optimize = false});
    std::optional<Outputs> expected;
    try {
      expected = results(plain, *of, kMemoryOfMany);
    } catch (const Error&) {
      return Outcome::Failed;
    }
    if (draws_numbers(of->model) || is_undecided(*of)) return Outcome::Ran;
    compare(*expected, *of, {}, "where it is optimized");
    const std::vector<Pass> passes = optional_passes_for(at::kCPU);
    const std::string left_out = passes[std::hash<std::string>()(bytes) % passes.size()].name;
    compare(*expected, *of, {.disabled_passes = {left_out}}, "without the pass " + left_out);
    return Outcome::Ran;
  });
}

at::Tensor bytes_of(const at::Tensor& t) {
  const at::Tensor elements = t.contiguous();  // of which one alone may have any stride
  return elements.as_strided({elements.numel()}, {1}).view(at::kByte);
}

// The same bits, but for those of a NaN.
bool same(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  if (a.is_complex()) return same(at::view_as_real(a.resolve_conj()), at::view_as_real(b.resolve_conj()));
  if (at::equal(bytes_of(a), bytes_of(b))) return true;
  if (!a.is_floating_point()) return false;
  const at::Tensor x = a.to(at::kDouble).flatten(), y = b.to(at::kDouble).flatten();
  return at::equal(at::isnan(x), at::isnan(y)) && at::equal(at::nan_to_num(x), at::nan_to_num(y));
}

at::Tensor turned_round(const at::Tensor& t) {
  const at::Tensor elements = t.flatten();
  const at::Tensor turned =
      t.element_size() == 1 ? elements.view(at::kByte).flip(0).view(t.scalar_type()) : elements.flip(0);
  return turned.reshape(t.sizes());
}

// The elements of each tensor from the last to the first.
Case turned_round(const Case& of) {
  Case other{of.model, {}};
  for (const auto& [name, data] : of.feeds) {
    const auto* const tensor = std::get_if<at::Tensor>(&data.value());
    other.feeds.emplace(name, tensor ? Data(turned_round(*tensor)) : data);
  }
  return other;
}

std::optional<Outputs> results_if_any(const CompiledModel& model, const Case& of) {
  try {
    return results(model, of, kMemoryOfMany);
  } catch (const Error&) {
    return {};
  }
}

void compare_bits(const CompiledModel& plain, const CompiledModel& planned, const Case& of, const std::string& when) {
  const auto expected = results_if_any(plain, of), found = results_if_any(planned, of);
  if (expected.has_value() != found.has_value()) {
    throw std::logic_error(std::string(found ? "does not fail" : "fails") + " with a plan, " + when);
  }
  for (size_t i = 0; expected && i < expected->size(); ++i) {
    if (!agree((*expected)[i], (*found)[i], same)) {
      throw std::logic_error("output " + std::to_string(i) + " differs with a plan, " + when);
    }
  }
}

// The second run records a plan, which the third one and those of other elements go by.
Outcome plan(const std::string& bytes) {
  return outcome_of(Outcome::Refused, [&] {
    const std::optional<Case> of = case_of(bytes);
    if (!of) return Outcome::NoModel;
    const bool optimize = std::hash<std::string>()(bytes) % 4 != 0;
    const CompiledModel plain = compiled(*of, {.optimize = optimize, .plans = 0});
    if (!results_if_any(plain, *of)) return Outcome::Failed;
    const CompiledModel planned = compiled(*of, {.optimize = optimize});
    for (int i = 0; i < 2; ++i) results_if_any(planned, *of);
    if (draws_numbers(of->model)) {
      results_if_any(planned, *of);
      return Outcome::Ran;
    }
    compare_bits(plain, planned, *of, "of the same elements");
    compare_bits(plain, planned, turned_round(*of), "of others");
    compare_bits(plain, planned, *of, "of the same elements after others");
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

void ignore_warnings() {
  struct Ignore : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  static Ignore ignore;
  c10::WarningUtils::set_warning_handler(&ignore);
}

Outcome outcome_of(Outcome where_refused, const std::function<Outcome()>& work) {
  try {
    return work();
  } catch (const Error&) {
    return where_refused;
  }
}

const std::map<std::string_view, Target*>& targets() {
  static const std::map<std::string_view, Target*> all{
      {"prepare", prepare}, {"run", run},     {"differential", differential},
      {"plan", plan},       {"saved", saved}, {"file", file},
      {"image", image},     {"text", text}};
  return all;
}

}  // namespace onnxtorch::fuzz
