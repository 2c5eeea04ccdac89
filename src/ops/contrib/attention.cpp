// Attention and its packed, sparse and windowed forms, and the biases that go with them.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_attention_ops(Registry& /*r*/) {}

}  // namespace onnxtorch
