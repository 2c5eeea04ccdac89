// Tokenizer, n-grams and hashes.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_text_ops(Registry& /*r*/) {}

}  // namespace onnxtorch
