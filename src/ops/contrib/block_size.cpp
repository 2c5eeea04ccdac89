#include "ops/contrib/block_size.h"

#include <ATen/ops/count_nonzero.h>
#include <onnx/onnx-ml.pb.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "translate/main_graph.h"

namespace onnxtorch {
namespace {

// onnxruntime fills up the channels of a weight to whole blocks. So what is in blocks of 8 is told by a number of
// channels that is no multiple of 16, and what is in blocks of 16 by a whole 8 channels that are filled up.
constexpr int64_t kSmall = 8, kLarge = 16;

int64_t size_on_this_cpu() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") ? kLarge : kSmall;
#else
  return kLarge;
#endif
}

int64_t attribute_or(const onnx::NodeProto& node, std::string_view name, int64_t otherwise) {
  const auto found = std::ranges::find(node.attribute(), name, &onnx::AttributeProto::name);
  return found == node.attribute().end() ? otherwise : found->i();
}

class Evidence {
 public:
  bool small = false, large = false;
  std::vector<const onnx::TensorProto*> biases;

  // Reads a graph, whose nodes come in order.
  void read(const onnx::GraphProto& graph) {
    for (const onnx::TensorProto& weight : graph.initializer()) weights_[weight.name()] = &weight;
    for (const onnx::NodeProto& node : graph.node()) {
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        if (attribute.has_g()) read(attribute.g());
      }
      read(node);
    }
  }

 private:
  void read(const onnx::NodeProto& node) {
    if (node.input().empty() || node.output().empty()) return;
    if (node.domain() == "com.microsoft.nchwc" && node.op_type() == "Conv") return read_conv(node);
    if (node.domain() == "com.microsoft.nchwc" && node.op_type() == "ReorderOutput") {
      const int64_t channels = attribute_or(node, "channels", 0);
      large |= channels > 0 && channels_[node.input(0)] - channels >= kSmall;
      return;
    }
    const bool joins = node.op_type() == "Concat";
    int64_t channels = 0;
    for (const std::string& input : node.input()) {
      channels = joins ? channels + channels_[input] : std::max(channels, channels_[input]);
    }
    channels_[node.output(0)] = channels;
  }

  void read_conv(const onnx::NodeProto& node) {
    const auto weight = [&](int i) {
      const auto found = i < node.input_size() ? weights_.find(node.input(i)) : weights_.end();
      return found == weights_.end() ? nullptr : found->second;
    };
    const onnx::TensorProto* const filters = weight(1);
    if (!filters || filters->dims_size() != 4) return;
    const int64_t outputs = filters->dims(0), inputs = filters->dims(1);
    small |= outputs % kLarge == kSmall || (inputs >= kLarge && inputs % kLarge == kSmall);
    channels_[node.output(0)] = outputs;
    if (const onnx::TensorProto* const bias = weight(2)) biases.push_back(bias);
  }

  std::map<std::string_view, const onnx::TensorProto*> weights_;
  std::map<std::string_view, int64_t> channels_;  // the channels of what is in blocks; 0 where that is not known
};

// Tells whether a whole 8 channels at the end of a bias are zero, and not all of it is.
bool is_filled_up(const at::Tensor& bias) {
  if (bias.dim() != 1 || bias.size(0) < kLarge || bias.size(0) % kLarge != 0) return false;
  return at::count_nonzero(bias.narrow(0, bias.size(0) - kSmall, kSmall)).item<int64_t>() == 0 &&
         at::count_nonzero(bias).item<int64_t>() > 0;
}

}  // namespace

int64_t block_size(Translator& t, const NodeView& n) {
  Evidence evidence;
  evidence.read(main_graph(t));
  if (evidence.small && evidence.large) n.fail("the model has weights in blocks of 8 channels, and in blocks of 16");
  if (evidence.small) return kSmall;
  const int64_t usual = size_on_this_cpu();
  if (evidence.large || usual == kLarge) return kLarge;
  const bool filled_up = std::ranges::any_of(
      evidence.biases, [&](const onnx::TensorProto* bias) { return is_filled_up(t.stored(*bias)); });
  return filled_up ? kLarge : usual;
}

}  // namespace onnxtorch
