// A saved model: what operators have laid out of their weights comes from a file, too.
#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "api/data_values.h"
#include "base/run_guard.h"
#include "base/saved_weights.h"
#include "case.h"
#include "import/model_reader.h"
#include "runtime/model.h"
#include "targets.h"

namespace onnxtorch::fuzz {
namespace {

using AllSaved = std::vector<std::vector<SavedWeights>>;

// In memory that ends where they do; at an odd address, as where a file's index is wrong, if they end with 1.
at::Tensor in_memory(const std::string& bytes) {
  const int64_t size = std::ssize(bytes), first = bytes.ends_with("\x01") ? 1 : 0;
  const at::Tensor memory = at::empty({first + size}, at::kByte);
  std::ranges::copy(bytes, memory.mutable_data_ptr<uint8_t>() + first);
  return memory.slice(0, first);
}

// From initializers that are called by the number of an operation and a layout, "laid 3 weight:strips"; without a
// layout the operation has nothing.
AllSaved take_saved(onnx::GraphProto& graph) {
  constexpr std::string_view kLaid = "laid ";
  constexpr size_t kMostOperations = 100;
  AllSaved all;
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    const std::string_view name = tensor.name();
    if (!name.starts_with(kLaid)) continue;
    size_t number = 0;
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kLaid.size(), end, number);
    if (error != std::errc() || rest == end || number >= kMostOperations) continue;
    all.resize(std::max(all.size(), number + 1));
    const std::string layout(rest + 1, end);
    if (!layout.empty()) all[number].push_back({layout, in_memory(tensor.raw_data())});
  }
  auto& initializers = *graph.mutable_initializer();
  const auto is_laid = [&](const onnx::TensorProto& tensor) { return tensor.name().starts_with(kLaid); };
  initializers.erase(std::remove_if(initializers.begin(), initializers.end(), is_laid), initializers.end());
  return all;
}

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
    AllSaved all = take_saved(*of->model.mutable_graph());
    const Options options{.threads = 1, .limits = {.prepare_seconds = kPrepareSeconds, .constant_bytes = kMemory}};
    const PreparedModel model(ModelFile::from_bytes(of->model.SerializeAsString()), options, std::move(all));
    return outcome_of(Outcome::Failed, [&] {
      const MemoryScope memory(kMemory);
      const auto strings = model.new_strings();
      model.run(fed(model, *of, *strings), strings);
      return Outcome::Ran;
    });
  });
}

}  // namespace onnxtorch::fuzz
