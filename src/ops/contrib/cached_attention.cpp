// Attention with a past: MultiHeadAttention, GroupQueryAttention, the decoders' forms; rotary embeddings.
#include "ops/contrib/contrib.h"
#include "translate/registry.h"

namespace onnxtorch {

void register_contrib_cached_attention_ops(Registry& /*r*/) {}

}  // namespace onnxtorch
