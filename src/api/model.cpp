#include "onnx_torch/model.h"

#include <torch/csrc/jit/frontend/builtin_functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <set>

#include "api/as_errors.h"
#include "api/data_values.h"
#include "base/thread_limit.h"
#include "import/model_reader.h"
#include "runtime/model.h"
#include "runtime/pipeline.h"
#include "translate/signature.h"

namespace onnxtorch {
namespace {

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// Runs the model. `given` holds what each input of the model is fed, null where an initializer stands for it.
Outputs run(const PreparedModel& model, const std::vector<const Data*>& given, std::vector<std::string> names) {
  const ThreadLimit limit(model.options().threads);  // for the conversions before and after the run, too
  const auto strings = model.new_strings();
  FedInputs feeds;
  for (size_t i = 0; i < given.size(); ++i) {
    const InputSpec& input = model.inputs()[i];
    feeds.push_back(given[i] ? std::optional(fed_from_data(*given[i], input.type, input.name, *strings))
                             : std::nullopt);
  }
  const PreparedModel::Result result = model.run(feeds, strings, {names});
  if (names.empty()) {
    for (const OutputSpec& output : model.outputs()) names.push_back(output.name);
  }
  std::vector<Data> values;
  for (size_t i = 0; i < result.values.size(); ++i) {
    values.push_back(data_from_value(result.values[i], result.types[i], *strings));
  }
  return {std::move(names), std::move(values)};
}

}  // namespace

const std::vector<InputSpec>& CompiledModel::inputs() const { return prepared_->inputs(); }
const std::vector<OutputSpec>& CompiledModel::outputs() const { return prepared_->outputs(); }
const Options& CompiledModel::options() const { return prepared_->options(); }

// Takes inputs in order for all inputs, or for those that must be fed, as old models list their weights as inputs too.
Outputs CompiledModel::run(const std::vector<Data>& inputs) const {
  std::vector<std::string> required;
  for (const InputSpec& input : this->inputs()) {
    if (!input.has_default) required.push_back(input.name);
  }
  const bool all = inputs.size() == this->inputs().size();
  if (!all && inputs.size() != required.size()) {
    throw InputError("expected " + std::to_string(required.size()) + " inputs (" + listed(required) + "), not " +
                     std::to_string(inputs.size()));
  }
  std::vector<const Data*> given;
  size_t next = 0;
  for (const InputSpec& input : this->inputs()) given.push_back(all || !input.has_default ? &inputs[next++] : nullptr);
  return as_errors([&] { return onnxtorch::run(*prepared_, given, {}); });
}

std::vector<PlacedNode> CompiledModel::placement() const {
  return as_errors([&] {
    std::vector<PlacedNode> placed;
    for (const auto& [where, why] : prepared_->placement()) {
      const TranslatedNode& node = prepared_->nodes()[placed.size()];
      placed.push_back({node.label, node.output, where, why});
    }
    return placed;
  });
}

void CompiledModel::trim() const { prepared_->trim(); }

Outputs CompiledModel::run(const Feeds& inputs, const std::vector<std::string>& outputs) const {
  std::vector<const Data*> given(this->inputs().size());
  for (const auto& [name, data] : inputs.values()) {
    const auto spec = std::ranges::find(this->inputs(), name, &InputSpec::name);
    if (spec == this->inputs().end()) {
      std::vector<std::string> known;
      for (const InputSpec& input : this->inputs()) known.push_back(input.name);
      throw InputError("unknown input \"" + name + "\"; the model's inputs are " + listed(known));
    }
    given[static_cast<size_t>(spec - this->inputs().begin())] = &data;
  }
  return as_errors([&] { return onnxtorch::run(*prepared_, given, outputs); });
}

Model Model::load(const std::filesystem::path& file, const std::filesystem::path& directory,
                  const ExternalReader& external) {
  return as_errors([&] { return Model(ModelFile::from_path(file, directory, external)); });
}

Model Model::from_bytes(std::string_view bytes, const std::filesystem::path& directory,
                        const ExternalReader& external) {
  return as_errors([&] { return Model(ModelFile::from_bytes(bytes, directory, external)); });
}

std::vector<InputSpec> Model::inputs() const {
  return as_errors([&] { return declared_inputs(file_->proto); });
}
std::vector<OutputSpec> Model::outputs() const {
  return as_errors([&] { return declared_outputs(file_->proto); });
}

std::map<std::string, std::string> Model::metadata() const {
  std::map<std::string, std::string> entries;
  for (const auto& entry : file_->proto.metadata_props()) entries[entry.key()] = entry.value();
  return entries;
}

CompiledModel Model::compile(const Options& options) const {
  return as_errors([&] { return CompiledModel(std::make_shared<const PreparedModel>(file_, options)); });
}

void make_ready() {
  torch::jit::getAllBuiltinFunctionsFor(c10::aten::add);
  Program empty;
  empty.graph = std::make_shared<torch::jit::Graph>();
  for (const Pass& pass : passes_for(c10::kCPU)) pass.run(empty);
}

}  // namespace onnxtorch
