// A saved model: what operators have laid out of their weights comes from a file, and so may the weights.
#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/data_values.h"
#include "base/run_guard.h"
#include "base/saved_weights.h"
#include "base/view_of.h"
#include "case.h"
#include "import/model_reader.h"
#include "import/open_file.h"
#include "random.h"
#include "runtime/model.h"
#include "targets.h"
#include "temporary_folder.h"

namespace onnxtorch::fuzz {
namespace {

using AllSaved = std::vector<std::vector<SavedWeights>>;

// What an operation has laid out, by its number.
struct Laid {
  size_t operation;
  std::string layout, bytes;
};

// From initializers that are called by the number of an operation and a layout, "laid 3 weight:strips"; without a
// layout the operation has nothing.
std::vector<Laid> take_laid(onnx::GraphProto& graph) {
  constexpr std::string_view kLaid = "laid ";
  constexpr size_t kMostOperations = 100;
  std::vector<Laid> all;
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    const std::string_view name = tensor.name();
    if (!name.starts_with(kLaid)) continue;
    size_t number = 0;
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kLaid.size(), end, number);
    if (error != std::errc() || rest == end || number >= kMostOperations) continue;
    all.push_back({number, {rest + 1, end}, tensor.raw_data()});
  }
  auto& initializers = *graph.mutable_initializer();
  const auto is_laid = [&](const onnx::TensorProto& tensor) { return tensor.name().starts_with(kLaid); };
  initializers.erase(std::remove_if(initializers.begin(), initializers.end(), is_laid), initializers.end());
  return all;
}

AllSaved saved_by_operation(const std::vector<Laid>& all, const std::function<at::Tensor(const Laid&)>& tensor_of) {
  AllSaved result;
  for (const Laid& laid : all) {
    result.resize(std::max(result.size(), laid.operation + 1));
    if (!laid.layout.empty()) result[laid.operation].push_back({laid.layout, tensor_of(laid)});
  }
  return result;
}

// In memory that ends where they do; at an odd address, as where a file's index is wrong, if they end with 1.
at::Tensor in_memory(const Laid& laid) {
  const std::string& bytes = laid.bytes;
  const int64_t size = std::ssize(bytes), first = bytes.ends_with("\x01") ? 1 : 0;
  const at::Tensor memory = at::empty({first + size}, at::kByte);
  std::ranges::copy(bytes, memory.mutable_data_ptr<uint8_t>() + first);
  return memory.slice(0, first);
}

// A file as rep.save writes one. What says where something is in it is not always right, and the file may be cut.
class SavedFile {
 public:
  explicit SavedFile(Random& random) : random_(random) {}

  // Moves the larger weights to the file.
  void take_weights(onnx::GraphProto& graph) {
    constexpr size_t kSmall = 1024;
    for (onnx::TensorProto& tensor : *graph.mutable_initializer()) {
      if (tensor.raw_data().size() < kSmall) continue;
      const FileRange range = put(tensor.raw_data());
      tensor.clear_raw_data();
      tensor.set_data_location(onnx::TensorProto::EXTERNAL);
      const auto say = [&](const char* key, const std::string& value) {
        auto& entry = *tensor.add_external_data();
        entry.set_key(key);
        entry.set_value(value);
      };
      say("location", kName);
      say("offset", std::to_string(range.offset));
      say("length", std::to_string(range.length));
    }
  }

  void take_laid(const std::vector<Laid>& all) {
    for (const Laid& laid : all) ranges_.push_back(put(laid.bytes));
  }

  // Writes the file, and gives what was laid out as views of it.
  AllSaved written(const std::filesystem::path& folder, const std::vector<Laid>& all) {
    if (random_.one_in(8)) blobs_.resize(random_.below(blobs_.size() + 1));
    const std::filesystem::path path = folder / kName;
    std::ofstream(path, std::ios::binary).write(blobs_.data(), std::ssize(blobs_));
    const Bytes whole = OpenFile(path).mapped();
    return saved_by_operation(all, [&](const Laid& laid) {
      const auto [offset, length] = ranges_[static_cast<size_t>(&laid - all.data())];
      const int64_t end = std::ssize(whole.view), from = std::clamp<int64_t>(offset, 0, end);  // as slices of numpy are
      return view_of(whole.view.data() + from, {std::clamp<int64_t>(length, 0, end - from)}, at::kByte, whole.owner);
    });
  }

 private:
  static constexpr const char* kName = "saved";

  FileRange put(const std::string& blob) {
    constexpr size_t kAlignment = 64;
    blobs_.resize((blobs_.size() + kAlignment - 1) / kAlignment * kAlignment);
    FileRange range{std::ssize(blobs_), std::ssize(blob)};
    blobs_ += blob;
    if (random_.one_in(16)) range.offset += random_.below(200) - 100;
    if (random_.one_in(16)) range.length += random_.below(200) - 100;
    return range;
  }

  Random& random_;
  std::string blobs_;
  std::vector<FileRange> ranges_;
};

// What an input is fed, or the initializer that stands for it.
FedInputs fed(const PreparedModel& model, const Case& of, StringPool& strings) {
  FedInputs feeds;
  for (const InputSpec& input : model.inputs()) {
    const auto found = of.feeds.find(input.name);
    const bool has_none = found == of.feeds.end();
    if (has_none && !input.has_default) throw InputError("the input \"" + input.name + "\" is not fed");
    feeds.push_back(has_none ? std::nullopt
                             : std::optional(fed_from_data(found->second, input.type, input.name, strings)));
  }
  return feeds;
}

}  // namespace

Outcome saved(const std::string& bytes) {
  return outcome_of(Outcome::Refused, [&] {
    std::optional<Case> of = case_of(bytes);
    if (!of) return Outcome::NoModel;
    onnx::GraphProto& graph = *of->model.mutable_graph();
    const std::vector<Laid> laid = take_laid(graph);
    Random random(std::hash<std::string>()(bytes));
    const bool has_file = random.below(2);
    std::optional<testing::TemporaryFolder> folder;
    if (has_file) folder.emplace();
    AllSaved all;
    if (has_file) {
      SavedFile file(random);
      file.take_weights(graph);
      file.take_laid(laid);
      all = file.written(folder->path(), laid);
    } else {
      all = saved_by_operation(laid, in_memory);
    }
    const Options options{.threads = 1,
                          .limits = {.prepare_seconds = kPrepareSeconds, .constant_bytes = kMemory},
                          .map_external = has_file};
    const std::filesystem::path directory = has_file ? folder->path() : std::filesystem::path();
    const PreparedModel model(ModelFile::from_bytes(of->model.SerializeAsString(), directory), options, std::move(all));
    return outcome_of(Outcome::Failed, [&] {
      const MemoryScope memory(kMemory);
      const auto strings = model.new_strings();
      model.run(fed(model, *of, *strings), strings);
      return Outcome::Ran;
    });
  });
}

}  // namespace onnxtorch::fuzz
