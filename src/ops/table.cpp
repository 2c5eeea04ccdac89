#include "ops/ops.h"
#include "translate/registry.h"

namespace onnxtorch {

const Registry& registry() {
  static const Registry table = [] {
    Registry r;
    register_shape_ops(r);
    register_math_ops(r);
    register_linear_ops(r);
    register_logical_ops(r);
    register_activation_ops(r);
    register_tensor_ops(r);
    register_indexing_ops(r);
    register_reduction_ops(r);
    register_normalization_ops(r);
    register_loss_ops(r);
    register_conv_ops(r);
    register_pooling_ops(r);
    register_image_ops(r);
    register_resize_ops(r);
    register_cast_ops(r);
    register_quantization_ops(r);
    register_recurrent_ops(r);
    register_attention_ops(r);
    register_signal_ops(r);
    register_random_ops(r);
    register_control_flow_ops(r);
    register_sequence_ops(r);
    register_optional_ops(r);
    register_training_ops(r);
    register_text_ops(r);
    register_ml_ops(r);
    register_experimental_ops(r);
    register_contrib_ops(r);
    return r;
  }();
  return table;
}

}  // namespace onnxtorch
