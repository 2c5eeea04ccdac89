#include "passes/device/host_work.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <string_view>

#include "passes/device/kernels_of.h"

namespace onnxtorch {
namespace {

constexpr const char *kStrings = "strings", *kHash = "hashes", *kLookUpByKey = "look-up by key",
                     *kSeed = "random numbers of a seed", *kRead = "a number that the host reads",
                     *kFlow = "control flow";

// The work of the host. Its kernels take their operands from the device and bring the result back.
constexpr HostWork kHostWork[] = {
    {"onnx_torch::string_concat", kStrings},
    {"onnx_torch::string_split", kStrings},
    {"onnx_torch::string_normalizer", kStrings},
    {"onnx_torch::string_join", kStrings},
    {"onnx_torch::string_length", kStrings},
    {"onnx_torch::number_to_string", kStrings},
    {"onnx_torch::string_to_number", kStrings},
    {"onnx_torch::regex_full_match", kStrings},
    {"onnx_torch::regex_replace", kStrings},
    {"onnx_torch::regex_split", kStrings},
    {"onnx_torch::split_sparse", kStrings},
    {"onnx_torch::ascii_case", kStrings},
    {"onnx_torch::ascii_strip", kStrings},
    {"onnx_torch::texts", kStrings},
    {"onnx_torch::strings", kStrings},
    {"onnx_torch::unique_strings", kStrings},
    {"onnx_torch::tokenize", kStrings},
    {"onnx_torch::word_pieces", kStrings},
    {"onnx_torch::word_piece_texts", kStrings},
    {"onnx_torch::byte_pairs", kStrings},
    {"onnx_torch::byte_pair_texts", kStrings},
    {"onnx_torch::sentence_pieces", kStrings},
    {"onnx_torch::sentence_text", kStrings},
    {"onnx_torch::hash_strings", kHash},
    {"onnx_torch::hash_elements", kHash},
    {"onnx_torch::tf_idf_vectorizer", "n-grams"},
    {"onnx_torch::image_decoder", "image decoding"},
    {"onnx_torch::dynamic_time_warping", "the cheapest path"},
    {"onnx_torch::find_keys", kLookUpByKey},
    {"onnx_torch::map_keys", kLookUpByKey},
    {"onnx_torch::numpy_random_uniform", kSeed},
    {"onnx_torch::numpy_random_normal", kSeed},
    {"onnx_torch::tree_ensemble", "trees"},
    {"onnx_torch::multiclass_probability", "probabilities of pairs of classes"},
    {"aten::item", kRead},
    {"aten::Int", kRead},
    {"aten::Float", kRead},
    {"aten::Bool", kRead},
    {"aten::cpu", kRead},
    {"aten::equal", kRead},
    {"prim::If", kFlow},
    {"prim::Loop", kFlow},
};

bool takes_tensor(const torch::jit::Node* node) {
  return std::ranges::any_of(node->inputs(), [](const torch::jit::Value* input) {
    return input->type()->isSubtypeOf(*c10::TensorType::get());
  });
}

}  // namespace

std::span<const HostWork> host_work() { return kHostWork; }

const char* host_work(const torch::jit::Node* node) {
  const std::string_view name = node->kind().toQualString();
  const auto* const found =
      std::ranges::find(kHostWork, name, [](const HostWork& work) { return std::string_view(work.name); });
  if (found == std::end(kHostWork)) return nullptr;
  if (found->what == kRead && !takes_tensor(node)) return nullptr;  // a number made of a number
  return found->what;
}

const char* host_work(const torch::jit::Node* node, c10::Device device) {
  const char* const what = host_work(node);
  const auto op = what ? dispatched(node) : std::nullopt;
  return op && op->hasKernelForDispatchKey(key_of(device)) ? nullptr : what;
}

}  // namespace onnxtorch
