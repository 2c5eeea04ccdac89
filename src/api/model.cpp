#include "onnx_torch/model.h"

#include <algorithm>
#include <set>

#include "api/data_values.h"
#include "import/model_reader.h"
#include "runtime/model.h"
#include "translate/signature.h"

namespace onnxtorch {
namespace {

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// The names that inputs in order go to: those of all inputs, or of those that must be fed, as old models list their
// weights as inputs too.
std::vector<std::string> positions(const std::vector<InputSpec>& inputs, size_t given) {
  std::vector<std::string> all, required;
  for (const InputSpec& input : inputs) {
    all.push_back(input.name);
    if (!input.has_default) required.push_back(input.name);
  }
  if (given == required.size()) return required;
  if (given == all.size()) return all;
  throw InputError("expected " + std::to_string(required.size()) + " inputs (" + listed(required) + "), not " +
                   std::to_string(given));
}

}  // namespace

const std::vector<InputSpec>& CompiledModel::inputs() const { return prepared_->inputs(); }
const std::vector<OutputSpec>& CompiledModel::outputs() const { return prepared_->outputs(); }
const Options& CompiledModel::options() const { return prepared_->options(); }

Outputs CompiledModel::run(const std::vector<Data>& inputs) const {
  const std::vector<std::string> names = positions(this->inputs(), inputs.size());
  std::map<std::string, Data> named;
  for (size_t i = 0; i < names.size(); ++i) named[names[i]] = inputs[i];
  return run(named);
}

Outputs CompiledModel::run(const Feeds& inputs, const std::vector<std::string>& outputs) const {
  const auto strings = prepared_->new_strings();
  std::map<std::string, Fed> feeds;
  for (const auto& [name, data] : inputs.values()) {
    const auto spec = std::ranges::find(this->inputs(), name, &InputSpec::name);
    if (spec == this->inputs().end()) {
      std::vector<std::string> known;
      for (const InputSpec& input : this->inputs()) known.push_back(input.name);
      throw InputError("unknown input \"" + name + "\"; the model's inputs are " + listed(known));
    }
    feeds[name] = fed_from_data(data, spec->type, name, *strings);
  }
  const PreparedModel::Result result = prepared_->run(std::move(feeds), strings, outputs);
  std::vector<std::string> names = outputs;
  if (names.empty()) {
    for (const OutputSpec& output : this->outputs()) names.push_back(output.name);
  }
  std::vector<Data> values;
  for (size_t i = 0; i < result.values.size(); ++i) {
    values.push_back(data_from_value(result.values[i], result.types[i], *strings));
  }
  return {std::move(names), std::move(values)};
}

Model Model::load(const std::filesystem::path& file, const std::filesystem::path& directory) {
  return Model(ModelFile::from_path(file, directory));
}

Model Model::from_bytes(std::string_view bytes, const std::filesystem::path& directory) {
  return Model(ModelFile::from_bytes(bytes, directory));
}

std::vector<InputSpec> Model::inputs() const { return declared_inputs(file_->proto); }
std::vector<OutputSpec> Model::outputs() const { return declared_outputs(file_->proto); }

std::map<std::string, std::string> Model::metadata() const {
  std::map<std::string, std::string> entries;
  for (const auto& entry : file_->proto.metadata_props()) entries[entry.key()] = entry.value();
  return entries;
}

CompiledModel Model::compile(const Options& options) const {
  return CompiledModel(std::make_shared<const PreparedModel>(file_, options));
}

}  // namespace onnxtorch
