// The models that a language model is made of.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "language/decoder.h"
#include "language/encoder.h"

namespace onnxtorch {

struct LanguageModelParts {
  Decoder first;                     // reads the first tokens
  std::optional<Decoder> with_past;  // reads those that follow, where that is another model
  std::optional<Encoder> encoder;
  std::shared_ptr<const std::vector<CacheEntry>> caches;  // empty: each step reads the whole sequence
  PastForm past_form = PastForm::Exact;

  const Decoder& next() const { return with_past ? *with_past : first; }
};

// Makes the parts. Throws InputError where a decoder takes a past that none gives.
std::shared_ptr<const LanguageModelParts> make_parts(Decoder first, std::optional<Decoder> with_past,
                                                     std::optional<Encoder> encoder);

}  // namespace onnxtorch
