#include "translate/refused.h"

#include <algorithm>

namespace onnxtorch {
namespace {

struct Refusal {
  std::string_view domain, op;  // "*" stands for any text; the first refusal that fits counts
  std::string_view why;
};

constexpr Refusal kRefusals[] = {
    {"com.microsoft", "EPContext",
     "it holds what an execution provider compiled for its device; load the original model, from which onnxruntime "
     "wrote this one under the session option ep.context_enable"},
    {"com.microsoft", "Snpe",
     "it holds a network that Qualcomm's SNPE compiled (DLC); load the original model, from before the conversion"},
    {"com.microsoft", "QuantizeBFP",
     "no text says how block floating point lies in its bytes; export the model without this quantization"},
    {"com.microsoft", "DequantizeBFP",
     "no text says how block floating point lies in its bytes; export the model without this quantization"},
    {"com.microsoft", "*Grad",
     "it is a gradient, as onnxruntime's training graphs hold them; load the model that the training graph was made "
     "of"},
    {"ai.onnx.contrib", "*",
     "it is an operator of the package onnxruntime-extensions that is not translated; run that part of the model by "
     "this "
     "package (tokenize before the model, say), or give a translation with register_op"},
    {"mmdeploy", "*",
     "it is an operator of mmdeploy that is not translated; export the model for mmdeploy's backend \"onnxruntime\", "
     "or give a translation with register_op"},
    {"mmcv", "*",
     "it is an operator of mmcv that is not translated; export the model with mmdeploy, or give a translation with "
     "register_op"},
    {"qonnx.custom_op.*", "*",
     "it is an operator of QONNX that is not translated; give a translation with register_op"},
    {"finn.custom_op.*", "*",
     "it is an operator of FINN, which compiles for FPGAs; load the QONNX model from before FINN's transformations, or "
     "give a translation with register_op"},
    {"*", "*_TRT", "it is a plugin of TensorRT that is not translated; export the model without plugins of TensorRT"},
};

// Tells whether a name fits the pattern, in which one "*" stands for any text.
bool fits(std::string_view name, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return name == pattern;
  const std::string_view begin = pattern.substr(0, star), end = pattern.substr(star + 1);
  return name.size() >= begin.size() + end.size() && name.starts_with(begin) && name.ends_with(end);
}

}  // namespace

std::string_view why_refused(std::string_view domain, std::string_view op) {
  const auto* const found = std::ranges::find_if(
      kRefusals, [&](const Refusal& refusal) { return fits(domain, refusal.domain) && fits(op, refusal.op); });
  return found == std::end(kRefusals) ? "" : found->why;
}

}  // namespace onnxtorch
