// The model that reads what a decoder's text is about: a text, sound or a picture.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "language/decoder.h"
#include "onnx_torch/language_model.h"
#include "runtime/model.h"

namespace onnxtorch {

class Encoder {
 public:
  explicit Encoder(std::shared_ptr<const PreparedModel> model) : model_(std::move(model)) {}

  // Gives the states of the prompt's tokens, or of its tensors.
  EncoderStates run(const Prompt& prompt) const;

 private:
  std::shared_ptr<const PreparedModel> model_;
};

}  // namespace onnxtorch
