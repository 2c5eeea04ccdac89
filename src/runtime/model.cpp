#include "runtime/model.h"

#include <ATen/ATen.h>
#include <malloc.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iostream>
#include <sstream>

#include "base/interruption.h"
#include "base/memory_reserve.h"
#include "base/note_shape.h"
#include "base/prepare_guard.h"
#include "base/stopwatch.h"
#include "base/text_of.h"
#include "base/thread_limit.h"
#include "passes/device/place.h"
#include "passes/device/waits.h"
#include "runtime/devices.h"
#include "runtime/dumped.h"
#include "runtime/guarded_run.h"
#include "runtime/processor_quota.h"
#include "runtime/running_graph.h"
#include "runtime/to_device.h"

namespace onnxtorch {
namespace {

std::string describe(const std::vector<Dim>& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i) text += ", ";
    text += dims[i].size >= 0 ? std::to_string(dims[i].size) : dims[i].symbol.empty() ? "?" : dims[i].symbol;
  }
  return text + "]";
}

std::string describe(at::IntArrayRef sizes) {
  std::ostringstream text;
  text << sizes;
  return text.str();
}

// Gives the values in the order of the graph's inputs.
std::vector<c10::IValue> inputs_of(const Program& program, const FedInputs& feeds) {
  std::vector<c10::IValue> inputs;
  inputs.reserve(feeds.size());
  for (const GraphInput& input : program.graph_inputs) {
    if (input.role == GraphInput::Role::Input) inputs.push_back(feeds[input.index]->value);
  }
  return inputs;
}

double bytes_of(const c10::IValue& value) {
  double bytes = 0;
  if (value.isTensor() && value.toTensor().defined()) bytes = static_cast<double>(value.toTensor().nbytes());
  if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) bytes += bytes_of(item);
  }
  return bytes;
}

double bytes_of(const FedInputs& feeds) {
  double bytes = 1;  // none would make a pace infinite
  for (const auto& fed : feeds) bytes += fed ? bytes_of(fed->value) : 0;
  return bytes;
}

void check_storage(ElementType declared, const at::Tensor& computed, const std::string& output) {
  if (declared == ElementType::Undefined || computed.scalar_type() == storage_dtype(declared)) return;
  throw RunError("the output \"" + output + "\" is declared to be " + std::string(info(declared).name) +
                 ", and is computed in torch's type " + c10::toString(computed.scalar_type()));
}

// Throws where a computed output has another type than is declared, as an ATen node may give it.
void check_storage(const ValueType& declared, const c10::IValue& computed, const std::string& output) {
  using Kind = ValueType::Kind;
  if (declared.kind == Kind::Tensor && computed.isTensor()) {
    check_storage(declared.element, computed.toTensor(), output);
  } else if (declared.kind == Kind::Sequence && computed.isList()) {
    for (const c10::IValue& item : computed.toListRef()) check_storage(*declared.inner, item, output);
  } else if (declared.kind == Kind::Optional) {
    check_storage(*declared.inner, computed, output);
  }
}

// Throws where runs cannot be recorded, whatever the model.
void check_recordings(const Options& options, c10::Device device) {
  if (!device.is_cuda()) throw InputError("cuda_graphs is for CUDA devices, and the device is " + options.device);
  if (options.limits.guard_runs()) throw InputError("cuda_graphs and limits exclude each other");
  if (!has_recordings()) throw DeviceError("this build has no CUDA graphs: it was built without the CUDA kernels");
}

// Reads for how many bytes the system had no memory, where the message is ATen's allocator's that says so.
std::optional<std::string> bytes_without_memory(const std::string& message) {
  constexpr std::string_view kMark = "DefaultCPUAllocator: ", kBytes = "you tried to allocate ";
  const size_t allocator = message.find(kMark), bytes = message.find(kBytes);
  if (allocator == std::string::npos || bytes == std::string::npos) return {};
  const size_t begin = bytes + kBytes.size();
  return message.substr(begin, message.find_first_not_of("0123456789", begin) - begin);
}

// Says what was wrong, without TorchScript's traceback in front.
std::string reason(std::string message) {
  constexpr std::string_view kMark = "RuntimeError: ";
  const size_t mark = message.find(kMark);
  if (mark != std::string::npos) message.erase(0, mark + kMark.size());
  const auto is_space = [](unsigned char c) { return std::isspace(c) != 0; };
  message.erase(message.begin(), std::ranges::find_if_not(message, is_space));
  constexpr std::string_view kAssert = "AssertionError: ";  // of a function of TorchScript
  if (message.starts_with(kAssert)) message.erase(0, kAssert.size());
  while (!message.empty() && is_space(message.back())) message.pop_back();
  const auto bytes = bytes_without_memory(message);
  return bytes ? "there is not enough memory for a tensor of " + *bytes + " bytes" : message;
}

NodeLabel label_of(std::optional<size_t> node, const Program& program) {
  return node && *node < program.nodes.size() ? program.nodes[*node].label : NodeLabel{};
}

}  // namespace

PreparedModel::PreparedModel(std::shared_ptr<const ModelFile> file, Options options,
                             std::vector<std::vector<SavedWeights>> saved)
    : file_(std::move(file)), options_(std::move(options)), device_(available_device(options_.device)) {
  check_options(options_, device_);
  if (options_.cuda_graphs.value_or(false)) check_recordings(options_, device_);
  const PrepareGuard guard(options_.limits);
  onnxtorch::check(file_->proto);
  [[maybe_unused]] static const bool followed = (follow_processor_quota(), true);  // once: a number set later stays
  const ThreadLimit limit(options_.threads);  // weights are laid out for as many threads as will run
  const auto settings = cuda_settings();
  Program program = lowered(base_variant());
  if (!saved.empty()) take_weights(program, std::move(saved));
  lay_out_weights(program);
  pace_.expect(program);
  base_ = runnable(base_variant(), std::move(program));
}

std::unique_ptr<CudaSettings> PreparedModel::cuda_settings() const {
  return device_.is_cuda() ? std::make_unique<CudaSettings>(options_.tf32) : nullptr;
}

std::string PreparedModel::graph_text() const { return base_.executable->program().graph->toString(); }

std::vector<NodePlacement> PreparedModel::placement() const {
  return onnxtorch::placement(translate(file_, translate_options(base_variant())), base_.executable->program(),
                              device_);
}

void PreparedModel::watch_steps(const Watcher& watcher) const {
  Program program = translate(file_, translate_options(base_variant()));
  watcher("translate", program);
  optimized(std::move(program), device_, options_, watcher);
}

TranslateOptions PreparedModel::translate_options(const Variant& variant, std::optional<size_t> watched) const {
  TranslateOptions options = onnxtorch::translate_options(options_);
  options.variant = variant;
  options.watched = watched;
  options.keeps = watched ? nullptr : kept_scripts(options_, device_);
  options.reads_back = device_.is_cpu() || !options_.optimize;
  return options;
}

Program PreparedModel::lowered(const Variant& variant, std::optional<size_t> watched) const {
  const PrepareGuard guard(options_.limits);
  Program program = translate(file_, translate_options(variant, watched));
  return watched ? placed(std::move(program), device_) : optimized(std::move(program), device_, options_);
}

PreparedModel::Runnable PreparedModel::runnable(const Variant& variant, Program program) const {
  const bool has_plans = device_.is_cpu() && !variant.timed && !variant.guarded;
  auto executable = std::make_shared<const Executable>(std::move(program), has_plans ? options_.plans : 0, memory_);
  const Program& of = executable->program();
  return {executable, std::make_shared<TriedSizes>(of.tried, of.inputs), recorded_runs(executable, variant)};
}

std::shared_ptr<RecordedRuns> PreparedModel::recorded_runs(const std::shared_ptr<const Executable>& executable,
                                                           const Variant& variant) const {
  const bool asked = options_.cuda_graphs.value_or(false);
  const bool wanted = options_.cuda_graphs.value_or(device_.is_cuda() && has_recordings());
  if (!wanted || variant.timed || variant.guarded) return {};
  try {
    check_recordable(executable->program(), device_);
  } catch (const UnsupportedError&) {
    if (asked) throw;
    return {};
  }
  return std::make_shared<RecordedRuns>(executable, device_, asked);
}

PreparedModel::Runnable PreparedModel::runnable_for(const Variant& variant) const {
  if (variant == base_variant()) return base_;
  return *variants_.get(variant, [&] { return runnable(variant, lowered(variant)); });
}

// Gives the graph for what is fed. The sizes that are fed become the variant's where they lie beyond what was tried.
PreparedModel::Runnable PreparedModel::runnable_for(Variant& variant, const FedInputs& feeds) const {
  Runnable found = runnable_for(variant);
  if (found.tried->cover(feeds)) return found;
  variant.sizes = sizes_of(feeds, found.executable->program().tried);
  return *beyond_.get(variant, [&] { return runnable_beyond(found, variant); });
}

// Tries what is known with the sizes of a run, too. Gives another graph only if something did not come out alike.
PreparedModel::Runnable PreparedModel::runnable_beyond(const Runnable& tried, const Variant& variant) const {
  const PrepareGuard guard(options_.limits);
  Program program = translate(file_, translate_options(variant));
  if (program.translated_hash == tried.executable->program().translated_hash) {
    tried.tried->extend(program.tried);
    return tried;
  }
  return runnable(variant, optimized(std::move(program), device_, options_));
}

void PreparedModel::trim() const {
  base_.executable->trim();
  variants_.clear();
  beyond_.clear();
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

void PreparedModel::check(const InputSpec& input, const Fed& fed) const {
  const auto fail = [&](const std::string& expected, const std::string& came) {
    throw InputError("the input \"" + input.name + "\" must be " + expected + ", not " + came);
  };
  const ValueType& expected =
      input.type.kind == ValueType::Kind::Optional && !(fed.type == input.type) ? *input.type.inner : input.type;
  if (fed.value.isNone()) {
    if (input.type.kind != ValueType::Kind::Optional) fail(expected.str(), "absent");
    return;
  }
  if (expected.known() && !(fed.type == expected)) fail(expected.str(), fed.type.str());
  if (!input.dims || !fed.value.isTensor()) return;
  const at::IntArrayRef sizes = fed.value.toTensor().sizes();
  bool fits = sizes.size() == input.dims->size();
  for (size_t i = 0; fits && i < sizes.size(); ++i) {
    fits = (*input.dims)[i].size < 0 || (*input.dims)[i].size == sizes[i];
  }
  if (!fits) fail("of shape " + describe(*input.dims), describe(sizes));
}

PreparedModel::Result PreparedModel::run(const FedInputs& feeds, const c10::intrusive_ptr<StringPool>& strings,
                                         WantedOutputs wanted, Profile* profile, const StopFlag* stop,
                                         Targets targets) const {
  keep_memory_reserve();
  Variant variant = base_variant();
  variant.outputs = std::move(wanted.names);
  if (wanted.all_elements) variant.last_only.clear();
  variant.timed = profile != nullptr;
  variant.guarded |= stop != nullptr;
  for (size_t i = 0; i < inputs().size(); ++i) {
    const InputSpec& input = inputs()[i];
    if (!feeds[i]) {
      if (input.has_default) continue;
      throw InputError("the input \"" + input.name + "\" is missing");
    }
    check(input, *feeds[i]);
    if (input.has_default) variant.overridden.insert(input.name);
  }
  const ThreadLimit limit(options_.threads);
  const auto settings = cuda_settings();
  const Runnable runnable = runnable_for(variant, feeds);
  return run(runnable, variant, feeds, {strings, profile, stop, std::move(targets)});
}

PreparedModel::Result PreparedModel::run(const Runnable& runnable, Variant variant, const FedInputs& feeds,
                                         const RunArguments& with) const {
  const Executable& executable = *runnable.executable;
  std::vector<c10::IValue> values = inputs_of(executable.program(), feeds);
  if (!runnable.recorded) values = to_device(std::move(values), device_);  // a recording copies them to where it reads
  try {
    return attempt(runnable, variant, values, feeds, with);
  } catch (const Error&) {
    throw;
  } catch (const StoppedRun& stopped) {
    throw StoppedError(stopped.what(), label_of(stopped.node, executable.program()));
  } catch (const std::exception& failure) {
    if (interrupted()) throw;
    if (const auto other = runnable_instead(runnable, variant, feeds)) return run(*other, variant, feeds, with);
    if (has_other_sizes(failure)) {  // a pass has told them, and not trials
      if (is_dumped("sizes")) std::cerr << text_of(failure) << "\n";
      executable.trust_sizes();
      return run(runnable, variant, feeds, with);
    }
    explain(failure, executable, variant, values, with.strings);
  }
}

// Gives another graph for what is fed, where one that failed takes for known what the sizes in this run do not have.
std::optional<PreparedModel::Runnable> PreparedModel::runnable_instead(const Runnable& failed, Variant& variant,
                                                                       const FedInputs& feeds) const {
  if (!variant.sizes.empty() || !has_open_sizes(failed.executable->program())) return {};
  Variant of_run = variant;
  of_run.sizes = sizes_of(feeds, failed.executable->program().tried);
  try {
    Runnable found = *beyond_.get(of_run, [&] { return runnable_beyond(failed, of_run); });
    if (found.executable == failed.executable) return {};
    failed.tried->exclude(feeds);
    variant = std::move(of_run);
    return found;
  } catch (const Error&) {  // the run's own failure says more
    return {};
  }
}

PreparedModel::Result PreparedModel::attempt(const Runnable& runnable, const Variant& variant,
                                             const std::vector<c10::IValue>& values, const FedInputs& feeds,
                                             const RunArguments& with) const {
  const auto& [executable, tried, recorded] = runnable;
  Result result;
  std::vector<NodeTime> times;
  const bool is_watched = device_.is_cpu() && is_interruptible();
  const double fed = is_watched ? bytes_of(feeds) : 0;
  const bool may_leave =
      device_.is_cpu() && (std::isfinite(options_.limits.seconds) || (is_watched && pace_.may_take_long(fed)));
  const Stopwatch stopwatch;
  if (variant.guarded || may_leave) {
    GuardedRun run{executable, values, with.strings, with.targets, options_.limits, device_, variant.timed, may_leave};
    GuardedRun::Result ended = std::move(run)(with.stop);
    result.values = std::move(ended.values);
    times = std::move(ended.times);
  } else {
    std::optional<NodeTimer> timer;
    if (with.profile) timer.emplace(device_);
    result.values =
        recorded ? recorded->run(values, with.strings) : executable->run(values, with.strings, with.targets);
    if (with.profile) times = timer->times();
  }
  if (is_watched) pace_.note(fed, stopwatch.seconds());
  if (with.profile) *with.profile = {std::move(times), executable->program().nodes};
  const std::vector<OutputSpec>& given = executable->program().outputs;
  for (size_t i = 0; i < given.size(); ++i) {
    check_storage(given[i].type, result.values[i], given[i].name);
    result.types.push_back(given[i].type);
  }
  return result;
}

void PreparedModel::explain(const std::exception& failure, const Executable& executable, const Variant& variant,
                            std::span<const c10::IValue> inputs, const c10::intrusive_ptr<StringPool>& strings) const {
  const std::string message = text_of(failure);
  const NodeLabel node = label_of(node_number(message), executable.program());
  if (node.empty()) throw RunError(reason(message));
  // The model runs again, with the shapes noted in front of the node that failed.
  std::string shapes;
  try {
    const Executable watched(lowered(variant, node_number(message)));
    const ShapeNotes notes;
    try {
      watched.run(to_device({inputs.begin(), inputs.end()}, device_), strings);
    } catch (const std::exception&) {
    }
    for (const std::string& line : notes.lines()) shapes += "\n  " + line;
  } catch (const std::exception&) {
  }
  throw RunError(reason(message) + shapes, node);
}

}  // namespace onnxtorch
