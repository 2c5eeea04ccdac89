// A model that is loaded by its path, with data in a file beside it.
#include <ATen/ATen.h>
#include <onnx_fuzz.pb.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "agree.h"
#include "base/run_guard.h"
#include "case.h"
#include "import/model_reader.h"
#include "import/tensor_proto.h"
#include "messages.h"
#include "on_disk.h"
#include "onnx_torch/model.h"
#include "targets.h"

namespace onnxtorch::fuzz {
namespace {

namespace fs = std::filesystem;
using Fed = std::map<std::string, Data>;
using Loaded = std::shared_ptr<const ModelFile>;

// A model's message without the remarks on its nodes, which a file is read without.
std::string without_remarks(const std::string& bytes) {
  onnx_fuzz::ModelProto model;
  model.ParseFromString(bytes);
  for (auto* const node : all_of<onnx_fuzz::NodeProto>(model)) {
    node->clear_doc_string();
    node->clear_metadata_props();
  }
  return model.SerializeAsString();
}

std::optional<std::string> message_of(const std::function<Loaded()>& load) {
  try {
    return without_remarks(load()->serialized());
  } catch (const Error&) {
    return {};
  }
}

// A file is read piece by piece, and large tensors are left in it: what comes of that is the same as of its bytes.
void check_reading(const fs::path& file, const std::string& bytes) {
  if (bytes.empty()) return;
  const auto by_path = message_of([&] { return ModelFile::from_path(file); });
  const auto of_bytes = message_of([&] { return ModelFile::from_bytes(bytes); });
  if (by_path.has_value() != of_bytes.has_value())
    throw std::logic_error(by_path ? "bytes are refused that are read by a path" : "a path is refused, not its bytes");
  if (by_path != of_bytes) throw std::logic_error("another model is read by its path");
}

bool is_outside(const at::Tensor& t) {
  constexpr int64_t kLeast = 16;  // bytes that no tensor has by chance
  if (static_cast<int64_t>(t.nbytes()) < kLeast || !t.is_contiguous()) return false;
  const auto* const bytes = static_cast<const char*>(t.const_data_ptr());
  return std::all_of(bytes, bytes + t.nbytes(), [](char byte) { return byte == kOutside; });
}

bool names_hard_link(const onnx::TensorProto& tensor) {
  return std::ranges::any_of(tensor.external_data(), [](const auto& entry) {
    return entry.key() == "location" && entry.value().ends_with(kHardLink);
  });
}

// No tensor is read of a file that is not the model's; a hard link is, where links are not refused.
void check_places(const Loaded& model, const ExternalAccess& access) {
  const TensorReader reader{model->external, access, [](std::string_view) { return 0; }};
  for (const onnx::TensorProto& tensor : model->proto.graph().initializer()) {
    try {
      if (!is_outside(reader.read(tensor, model))) continue;
    } catch (const Error&) {
      continue;
    }
    if (access.refuses_links || !names_hard_link(tensor)) throw std::logic_error("a file outside is read");
  }
}

Options options_of(const onnx::ModelProto& model) {
  Options options{.threads = 1, .limits = {.prepare_seconds = kPrepareSeconds, .constant_bytes = kMemory}};
  if (names_one_of(model, {"Loop"})) options.limits.max_iterations = 10'000;
  return options;
}

Outputs results(const CompiledModel& model, const Fed& feeds = {}, const std::vector<std::string>& outputs = {}) {
  const MemoryScope scope(kMemory / 4);
  return model.run(feeds, outputs);
}

// What a model gives whose inputs all have initializers. A limit may be met in one of two runs alone.
struct Result {
  std::optional<Outputs> outputs;
  bool was_stopped = false;
};

Result result_of(const std::function<Outputs()>& run) {
  try {
    return {run()};
  } catch (const StoppedError&) {
    return {{}, true};
  } catch (const Error&) {
    return {};
  }
}

void compare(const Result& whole, const Result& by_path) {
  if (whole.was_stopped || by_path.was_stopped) return;
  if (whole.outputs.has_value() != by_path.outputs.has_value())
    throw std::logic_error(whole.outputs ? "fails by its path" : "does not fail by its path");
  for (size_t i = 0; whole.outputs && i < whole.outputs->size(); ++i) {
    if (!agree((*whole.outputs)[i], (*by_path.outputs)[i], alike))
      throw std::logic_error("output " + std::to_string(i) + " differs by its path");
  }
}

// Other values, or initializers that are fed, have tensors read once more. Whatever the package refuses is fine.
void run_otherwise(const CompiledModel& model, const onnx::ModelProto& proto, const Fed& feeds, Random& random) {
  Fed some;
  for (const auto& [name, data] : feeds)
    if (random.below(2)) some.emplace(name, data);
  std::vector<std::string> outputs;
  const auto& nodes = proto.graph().node();
  if (!nodes.empty() && random.below(2)) {
    const auto& node = nodes[random.below(nodes.size())];
    if (node.output_size() > 0) outputs.push_back(node.output(0));
  }
  result_of([&] { return results(model, some, outputs); });
}

Fed feeds_of(const std::string& bytes) {
  try {
    const std::optional<Case> of = case_of(bytes);
    return of ? of->feeds : Fed();
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

// What is done with an input is told by its bytes.
Outcome file(const std::string& bytes) {
  onnx::ModelProto proto;
  if (!proto.ParseFromString(bytes)) return Outcome::NoModel;
  Random random(std::hash<std::string>()(bytes));
  const Layout layout = laid_out(bytes, random);
  const ModelFolder folder(layout);
  check_reading(folder.file(), layout.model);

  Options options = options_of(proto);
  options.map_external = random.below(2);
  if (random.one_in(4)) options.links = "refuse";
  const ExternalAccess access{options.links == "refuse", options.map_external};
  const bool linked = random.one_in(4), of_bytes = !linked && random.one_in(4);
  const fs::path path = linked ? folder.linked_file() : folder.file();
  const fs::path directory = random.one_in(3) || of_bytes ? folder.directory() : fs::path();
  return outcome_of(Outcome::Refused, [&] {
    check_places(of_bytes ? ModelFile::from_bytes(layout.model, directory) : ModelFile::from_path(path, directory),
                 access);
    const Model model = of_bytes ? Model::from_bytes(layout.model, directory) : Model::load(path, directory);
    const bool stays = layout.is_sound || !random.one_in(3);
    if (!stays) folder.spoil(random);
    const auto compiled_by_path = [&] { return model.compile(options); };
    if (layout.is_sound && !(linked && access.refuses_links)) {
      const Result by_path = result_of([&] { return results(compiled_by_path()); });
      const Result whole = result_of([&] { return results(Model::from_bytes(layout.whole).compile(options)); });
      const Case of{proto, {}};
      if (!draws_numbers(proto) && !is_undecided(of)) compare(whole, by_path);
    }
    const CompiledModel compiled = compiled_by_path();
    if (!options.map_external && random.one_in(3)) folder.spoil(random);
    return outcome_of(Outcome::Failed, [&] {
      const Fed feeds = feeds_of(bytes);
      run_otherwise(compiled, proto, feeds, random);
      results(compiled);
      return Outcome::Ran;
    });
  });
}

}  // namespace onnxtorch::fuzz
