// A model prepared for a device: checks what it is fed, runs it, and says which node failed.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/node_timer.h"
#include "base/recent.h"
#include "base/run_guard.h"
#include "import/model_reader.h"
#include "onnx_torch/options.h"
#include "passes/cpu/packed_weights.h"
#include "passes/device/placement.h"
#include "runtime/cuda_settings.h"
#include "runtime/executable.h"
#include "runtime/fed.h"
#include "runtime/pace.h"
#include "runtime/pipeline.h"
#include "runtime/recorded_runs.h"
#include "runtime/tried_sizes.h"
#include "translate/translate.h"

namespace onnxtorch {

// What a run is to give.
struct WantedOutputs {
  std::vector<std::string> names = {};  // values of the main graph, in this order; none: the model's outputs
  bool all_elements = false;            // those of the options' last_only are given as wholes, too
};

class PreparedModel {
 public:
  // Prepares a model. `saved` is what saved_weights gave of the same model, prepared in the same way.
  PreparedModel(std::shared_ptr<const ModelFile> file, Options options,
                std::vector<std::vector<SavedWeights>> saved = {});

  // Gives the model itself, to be prepared once more; all that is prepared of it on one device at the same time shares
  // weights there.
  const std::shared_ptr<const ModelFile>& file() const { return file_; }
  const std::vector<InputSpec>& inputs() const { return base_.executable->program().inputs; }
  const std::vector<OutputSpec>& outputs() const { return base_.executable->program().outputs; }
  std::string graph_text() const;
  // Tells what runs of the sizes that have come so far do, each as text.
  std::vector<std::string> plan_texts() const { return base_.executable->plan_texts(); }
  // Prepares the model once more, for the watcher to see each step.
  void watch_steps(const Watcher& watcher) const;
  // Tells where each of the nodes runs, and why.
  std::vector<NodePlacement> placement() const;
  const Program& program() const { return base_.executable->program(); }
  const std::vector<TranslatedNode>& nodes() const { return base_.executable->program().nodes; }
  const onnx::ModelProto& proto() const { return file_->proto; }
  std::string serialized() const { return file_->serialized(); }
  const Options& options() const { return options_; }

  // Makes a pool for the strings of one run.
  c10::intrusive_ptr<StringPool> new_strings() const {
    return c10::make_intrusive<StringPool>(base_.executable->program().strings);
  }

  struct Result {
    std::vector<c10::IValue> values;
    std::vector<ValueType> types;
  };
  struct Profile {
    std::vector<NodeTime> times;
    std::vector<TranslatedNode> nodes;  // a time has their index
  };
  // Runs the model. A run with a profile takes longer. So does one that can be stopped, by `stop` or by the limits of
  // the options. Values may be the targets for them, which then hold the results.
  Result run(const FedInputs& feeds, const c10::intrusive_ptr<StringPool>& strings, WantedOutputs wanted = {},
             Profile* profile = nullptr, const StopFlag* stop = nullptr, Targets targets = {}) const;

  // Gives back to the system what runs have left for later ones: memory for results, and the graphs that were made for
  // other outputs or for fed initializers. Runs may be under way; later ones take anew what they need.
  void trim() const;

 private:
  Variant base_variant() const {
    return {.overridden = {}, .outputs = {}, .last_only = options_.last_only, .guarded = options_.limits.guard_runs()};
  }
  std::unique_ptr<CudaSettings> cuda_settings() const;  // for the CUDA device that the model is on, if it is
  TranslateOptions translate_options(const Variant& variant, std::optional<size_t> watched = {}) const;
  Program lowered(const Variant& variant, std::optional<size_t> watched = {}) const;
  // One graph of the model, the sizes that it is right for, and the object that records its runs, if they are recorded.
  struct Runnable {
    std::shared_ptr<const Executable> executable;
    std::shared_ptr<TriedSizes> tried;
    std::shared_ptr<RecordedRuns> recorded;
  };
  Runnable runnable(const Variant& variant, Program program) const;
  std::shared_ptr<RecordedRuns> recorded_runs(const std::shared_ptr<const Executable>& executable,
                                              const Variant& variant) const;
  Runnable runnable_for(const Variant& variant) const;
  Runnable runnable_for(Variant& variant, const FedInputs& feeds) const;
  Runnable runnable_beyond(const Runnable& tried, const Variant& variant) const;
  std::optional<Runnable> runnable_instead(const Runnable& failed, Variant& variant, const FedInputs& feeds) const;
  struct RunArguments {
    c10::intrusive_ptr<StringPool> strings;
    Profile* profile;
    const StopFlag* stop;
    Targets targets;
  };
  Result run(const Runnable& runnable, Variant variant, const FedInputs& feeds, const RunArguments& with) const;
  Result attempt(const Runnable& runnable, const Variant& variant, const std::vector<c10::IValue>& values,
                 const FedInputs& feeds, const RunArguments& with) const;
  void check(const InputSpec& input, const Fed& fed) const;
  [[noreturn]] void explain(const std::exception& failure, const Executable& executable, const Variant& variant,
                            std::span<const c10::IValue> inputs, const c10::intrusive_ptr<StringPool>& strings) const;

  std::shared_ptr<const ModelFile> file_;
  Options options_;
  c10::Device device_;
  const std::shared_ptr<WorkMemory> memory_ = std::make_shared<WorkMemory>();  // for runs of all graphs of the model
  Runnable base_;
  mutable Pace pace_;
  // The graphs for fed initializers and for other outputs. Feeding an initializer makes another graph of the model, as
  // it was a constant before. So does asking for other outputs.
  mutable Recent<Variant, Runnable> variants_{16};
  // The graphs for sizes of which no trial tells what the graph takes for known.
  mutable Recent<Variant, Runnable> beyond_{16};
};

}  // namespace onnxtorch
