#include "language/encoder.h"

#include <algorithm>
#include <set>

#include "base/element_type.h"
#include "language/sequences.h"
#include "runtime/torch_tensor.h"

namespace onnxtorch {
namespace {

// Gives the index of the output that holds the states: the one that has such a name, or the first.
size_t states_output(const PreparedModel& model) {
  const auto& outputs = model.outputs();
  const auto named = std::ranges::find_if(outputs, [](const OutputSpec& output) {
    return output.name == "last_hidden_state" || output.name == "encoder_hidden_states";
  });
  return named == outputs.end() ? 0 : static_cast<size_t>(named - outputs.begin());
}

}  // namespace

EncoderStates Encoder::run(const Prompt& prompt) const {
  std::map<std::string, at::Tensor> given = prompt.encoder_inputs;
  if (!prompt.encoder_ids.empty()) {
    const Padded tokens = padded(prompt.encoder_ids, Side::Right);
    given.emplace("input_ids", tokens.ids);
    given.emplace("attention_mask", tokens.mask);
  }
  FedInputs feeds(model_->inputs().size());
  std::set<std::string> taken;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const InputSpec& input = model_->inputs()[i];
    const auto found = given.find(input.name);
    if (found == given.end()) {
      if (input.has_default) continue;
      throw InputError("the encoder takes \"" + input.name + "\", which is not given");
    }
    const at::Tensor tensor = found->second.to(storage_dtype(input.type.element));
    feeds[i] = fed_from_tensor(tensor, input.type.element, input.name);
    taken.insert(input.name);
  }
  for (const auto& [name, tensor] : given) {
    if (!taken.contains(name) && name != "attention_mask") {
      throw InputError("the encoder has no input \"" + name + "\"");
    }
  }
  const auto result = model_->run(feeds, model_->new_strings());
  EncoderStates states{{"encoder_hidden_states", result.values[states_output(*model_)].toTensor()}};
  const auto mask = given.find("attention_mask");
  if (mask != given.end()) {
    states["encoder_attention_mask"] = mask->second;
  } else {
    const at::Tensor& hidden = states["encoder_hidden_states"];
    states["encoder_attention_mask"] = at::ones({hidden.size(0), hidden.size(1)}, at::kLong);
  }
  return states;
}

}  // namespace onnxtorch
