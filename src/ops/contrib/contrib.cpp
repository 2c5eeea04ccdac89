#include "ops/contrib/contrib.h"

#include "ops/ops.h"

namespace onnxtorch {

void register_contrib_ops(Registry& r) {
  register_contrib_activation_ops(r);
  register_contrib_attention_ops(r);
  register_contrib_block_quantization_ops(r);
  register_contrib_cached_attention_ops(r);
  register_contrib_experts_ops(r);
  register_contrib_extensions_ops(r);
  register_contrib_layouts_ops(r);
  register_contrib_linear_ops(r);
  register_contrib_mmdeploy_ops(r);
  register_contrib_normalization_ops(r);
  register_contrib_qonnx_ops(r);
  register_contrib_quantization_ops(r);
  register_contrib_search_ops(r);
  register_contrib_state_space_ops(r);
  register_contrib_tensor_ops(r);
  register_contrib_text_ops(r);
  register_contrib_tokenizers_ops(r);
}

}  // namespace onnxtorch
